"""What rescues a start that hardly looks, or hardly uses what it saw, with a fixed budget.

    python experiments/explore_hard.py [--seeds N] [--only NAME] [--report]

Every rescue spends the same number of trials (two environment steps each) on one of two starts of
the preset `explore`, and is then evaluated on held-out tasks. Seeds beyond the first are only run
for rescues that `--only` names. Results are kept in docs/results/explore-hard-starts.json, where a
cell that is there is not run again; their tables are printed at the end (`--report` does only
that).
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from explore import mean_of
from explore_runs import (
    FITTING,
    RESULTS,
    ROLLOUTS,
    Store,
    bests,
    imitate_successes,
    loaded,
    made_start,
    measure,
    train,
)

from agentsgym.warm_start.settings import WarmStartSettings

UPDATES, EVALUATED = 120, 512
TEACHER_TRIALS = 25_600
FEWEST_LOOKS = 10
UNTRAINED = "none"
FIGURES = ("score", "looks", "uses", "malformed")
HEAD = ("rescue", "n", "score", "its seeds", *FIGURES[1:])


@dataclass(frozen=True)
class Learn:
    """Reinforcement learning for a share of the budget, with these changes to the preset."""

    share: float = 1.0
    game: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Imitate:
    """Supervised training on successful trials: own ones, played for a share of the budget, or
    those among `teacher` trials of the start's teacher (beyond the budget). With `paid=False` as
    many trials, whatever they earned."""

    share: float = 0.0
    teacher: int = 0
    paid: bool = True
    fitting: WarmStartSettings = FITTING


Rescue = Sequence[Learn | Imitate]


def _train(**settings: Any) -> Rescue:
    return (Learn(train=settings),)


RESCUES: Mapping[str, Rescue] = {
    "the preset": (Learn(),),
    "128 rollouts an update": _train(per_device_train_batch_size=128),
    "`malformed_penalty` 0.5": (Learn(game={"malformed_penalty": 0.5}),),
    "own successes, once": (Imitate(0.25), Learn(0.75)),
    "own successes, three times": (Imitate(0.25), Imitate(0.25), Imitate(0.25), Learn(0.25)),
    "its teacher's successes": (Imitate(teacher=TEACHER_TRIALS), Learn()),
    "as many games of its teacher": (Imitate(teacher=TEACHER_TRIALS, paid=False), Learn()),
    "two actions an episode first": (Learn(1 / 3, {"max_steps_per_episode": 2}), Learn(2 / 3)),
    "2 choices first": (Learn(1 / 3, {"choices": 2}), Learn(2 / 3)),
    "learning rate 3e-4": _train(learning_rate=3e-4),
    "learning rate rises over half": _train(warmup_steps=UPDATES // 2),
    "KL to the start, 0.03": _train(beta=0.03),
    "groups of 32": _train(num_generations=32),
    "temperature 1.3": _train(temperature=1.3),
    "`trial_cv`": _train(advantage_estimator="trial_cv"),
}


def _successes(trials: int, epochs: int) -> Rescue:
    """Until what answers mean together is learned, the held-out loss says nothing: no patience."""
    fitting = FITTING.model_copy(
        update={"epochs": epochs, "batch_size": 64, "learning_rate": 1.5e-3, "patience": epochs}
    )
    return (Imitate(teacher=trials, fitting=fitting), Learn(2, train=FALLING))


FALLING = {"lr_scheduler_type": "linear"}
TWICE = "twice the budget"
ENTROPY = "`entropy_coef` 0.02, twice the budget"
SUCCESSES = "its teacher's successes, twice the budget"
SWITCHES_RESCUES: Mapping[str, Rescue] = {
    TWICE: (Learn(2),),
    "five times the budget": (Learn(5, train=FALLING),),
    ENTROPY: (Learn(2, train={"entropy_coef": 0.02}),),
    "4 sets first, three times the budget": (
        Learn(1, {"choices": 4}),
        Learn(2, train=FALLING),
    ),
    SUCCESSES: _successes(10_000, 12),
}
RULE_RESCUES: Mapping[str, Rescue] = {
    TWICE: (Learn(2),),
    ENTROPY: (Learn(2, train={"entropy_coef": 0.02}),),
    "2 numbers first, twice the budget": (Learn(1, {"choices": 2}), Learn(1)),
    "own successes, three times": RESCUES["own successes, three times"],
}


@dataclass(frozen=True)
class Start:
    """A model before learning: its game, and the careless teachers that it imitates one after the
    other, the first one with these changes to the preset's warm start, a second one for a quarter
    of its updates."""

    teachers: Sequence[Mapping[str, float]] = ({},)
    game: Mapping[str, Any] = field(default_factory=dict)
    warm_start: Mapping[str, Any] = field(default_factory=dict)
    rescues: Mapping[str, Rescue] = field(default_factory=lambda: RESCUES)


OFTEN, SELDOM = {"teacher_uses": 0.7}, {"teacher_uses": 0.2}
RULE = {"game": "rule", "choices": 4}
STARTS: Mapping[str, Start] = {
    "looks 5 %": Start([{"teacher_looks": 0.05, **OFTEN}]),
    "uses 20 %": Start([SELDOM]),
    "uses 20 %, after 70 %": Start([{"teacher_looks": 0.05, **OFTEN}, SELDOM]),
    "looks 5 %, uses 20 %, after 70 %": Start(
        [{"teacher_looks": 0.05, **OFTEN}, {"teacher_looks": 0.05, **SELDOM}]
    ),
    "2 switches": Start(
        game={"game": "switches", "choices": 4}, rescues={TWICE: SWITCHES_RESCUES[TWICE]}
    ),
    "3 switches": Start(game={"game": "switches"}, rescues=SWITCHES_RESCUES),
    "rule, 4 numbers": Start(game=RULE, rescues=RULE_RESCUES),
    "rule, 4 numbers, learned slowly": Start(
        game=RULE,
        warm_start={"steps": 1200, "learning_rate": 1e-3},
        rescues={TWICE: RULE_RESCUES[TWICE]},
    ),
    "rule, 8 numbers": Start(
        game={"game": "rule"},
        rescues={TWICE: (Learn(2),), SUCCESSES: _successes(20_000, 24)},
    ),
}


def start_of(name: str, folder: Path) -> Path:
    """The weights of a start."""
    start = STARTS[name]
    first, *second = ({**start.game, **teacher} for teacher in start.teachers)
    settings = {"steps": 400, **start.warm_start}
    begun = made_start([first], folder / f"{first} {start.warm_start}", **settings)
    if not second:
        return begun
    steps = settings["steps"] // 4
    return made_start(second, folder / name, begun=begun, steps=steps, learning_rate=1e-3)


def run(
    start: str,
    rescue: str,
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    """The figures of one cell."""
    model, tokenizer = loaded(folder)
    game, rescues = STARTS[start].game, STARTS[start].rescues
    began, rewards = time.process_time(), []
    for number, stage in enumerate(rescues[rescue]):
        if isinstance(stage, Imitate):
            rewards.append(_imitate(stage, STARTS[start], model, tokenizer, 10 * seed + number))
        else:
            batch = stage.train.get("per_device_train_batch_size", ROLLOUTS)
            updates = round(stage.share * UPDATES * ROLLOUTS / batch)
            rewards += train(model, tokenizer, {**game, **stage.game}, updates, seed, **stage.train)
    return {
        "start": start,
        "rescue": rescue,
        "seed": seed,
        **measure(model, tokenizer, game, EVALUATED),
        "cpu_seconds": round(time.process_time() - began, 1),
        "training": [round(reward, 3) for reward in rewards],
    }


def _imitate(stage: Imitate, start: Start, model: Any, tokenizer: Any, seed: int) -> float:
    return imitate_successes(
        model,
        tokenizer,
        stage.teacher or round(stage.share * UPDATES * ROLLOUTS),
        seed=seed,
        game=start.game,
        teacher=start.teachers[-1] if stage.teacher else None,
        paid_only=stage.paid,
        fitting=stage.fitting,
    )


def main() -> None:
    """Run the cells that have no result, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", action="append", help="only rescues with this in their name")
    parser.add_argument("--start", action="append", choices=STARTS, help="only this start")
    parser.add_argument("--cache", type=Path, help="a folder that keeps the starts")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    args = parser.parse_args()
    store = Store(RESULTS / "explore-hard-starts.json")
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        for seed in range(0 if args.report else args.seeds):
            for start in args.start or STARTS:
                for rescue in STARTS[start].rescues:
                    if not args.only or any(part in rescue for part in args.only):
                        cell(store, start, rescue, seed, cache)
    report(store)


def cell(store: Store, start: str, rescue: str, seed: int, cache: Path) -> None:
    """Run a cell, and before the first one of a start measure the start itself."""
    known = {(r["start"], r["rescue"], r["seed"]) for r in store.read()}
    folder = start_of(start, cache)
    if (start, UNTRAINED, 0) not in known:
        figures = measure(*loaded(folder), STARTS[start].game, EVALUATED)
        store.add({"start": start, "rescue": UNTRAINED, "seed": 0, **figures})
    if (start, rescue, seed) not in known:
        store.add(run(start, rescue, seed, folder))


def table(results: Sequence[Mapping[str, Any]], start: str) -> str:
    """What each rescue made of a start."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for rescue in (UNTRAINED, *STARTS[start].rescues):
        runs = [r for r in results if (r["start"], r["rescue"]) == (start, rescue)]
        if runs:
            means = [mean_of([_shown(r, key) for r in runs]) for key in FIGURES]
            seeds = ", ".join(f"{r['score']:.3f}" for r in sorted(runs, key=lambda r: r["seed"]))
            lines.append((rescue, str(len(runs)), means[0], seeds, *means[1:]))
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _shown(result: Mapping[str, Any], figure: str) -> float | None:
    """A figure of a run; what so few trials used says nothing."""
    few = result["looks"] * EVALUATED < FEWEST_LOOKS
    return None if figure == "uses" and few else float(result[figure])


def report(store: Store) -> None:
    """Print a table of the stored results for each start."""
    results = store.read()
    for name, start in STARTS.items():
        if any(r["start"] == name for r in results):
            never, best = bests(start.game)
            print(f"{name}: best play {best:g}, without exploring {never:g}\n")
            print(table(results, name))


if __name__ == "__main__":
    main()
