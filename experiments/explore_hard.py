"""What rescues a start that hardly looks, or hardly uses what it saw, with a fixed budget.

    python experiments/explore_hard.py [--seeds N] [--only NAME] [--report]

Every rescue spends the same number of trials (two environment steps each) on one of two starts of
the preset `explore`, and is then evaluated on held-out tasks. Seeds beyond the first are only run
for rescues that `--only` names. Results are kept in docs/results/explore-hard-starts.json, where a
cell that is there is not run again; the page explore-hard-starts.md is written at the end
(`--report` does only that).
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
    RESULTS,
    ROLLOUTS,
    Store,
    imitate_successes,
    loaded,
    made_start,
    measure,
    remarks,
    train,
)

UPDATES, EVALUATED = 120, 512
TEACHER_TRIALS = 25_600
FEWEST_LOOKS = 10
UNTRAINED = "none"
FIGURES = ("score", "looks", "uses", "malformed")
HEAD = ("rescue", "n", "score", "its seeds", *FIGURES[1:])
STARTS: Mapping[str, tuple[Mapping[str, float], ...]] = {
    "looks 5 %": ({"teacher_looks": 0.05, "teacher_uses": 0.7},),
    "uses 20 %": ({"teacher_looks": 0.15, "teacher_uses": 0.2},),
    "uses 20 %, after 70 %": (
        {"teacher_looks": 0.05, "teacher_uses": 0.7},
        {"teacher_looks": 0.15, "teacher_uses": 0.2},
    ),
    "looks 5 %, uses 20 %, after 70 %": (
        {"teacher_looks": 0.05, "teacher_uses": 0.7},
        {"teacher_looks": 0.05, "teacher_uses": 0.2},
    ),
}
"""The teachers that each start imitates: the first for 400 updates, the second for 100."""


@dataclass(frozen=True)
class Learn:
    """Reinforcement learning for a share of the budget, with these changes to the preset."""

    share: float = 1.0
    game: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Imitate:
    """Supervised training on successful trials: own ones, played for a share of the budget, or
    those of the start's teacher, of as many as its warm start had (beyond the budget). With
    `paid=False` as many trials, whatever they earned."""

    share: float = 0.0
    teacher: bool = False
    paid: bool = True


Rescue = Sequence[Learn | Imitate]


def _train(**settings: Any) -> Rescue:
    return (Learn(train=settings),)


RESCUES: Mapping[str, Rescue] = {
    "the preset": (Learn(),),
    "128 rollouts an update": _train(per_device_train_batch_size=128),
    "`malformed_penalty` 0.5": (Learn(game={"malformed_penalty": 0.5}),),
    "own successes, once": (Imitate(0.25), Learn(0.75)),
    "own successes, three times": (Imitate(0.25), Imitate(0.25), Imitate(0.25), Learn(0.25)),
    "its teacher's successes": (Imitate(teacher=True), Learn()),
    "as many games of its teacher": (Imitate(teacher=True, paid=False), Learn()),
    "two actions an episode first": (Learn(1 / 3, {"max_steps_per_episode": 2}), Learn(2 / 3)),
    "2 choices first": (Learn(1 / 3, {"choices": 2}), Learn(2 / 3)),
    "learning rate 3e-4": _train(learning_rate=3e-4),
    "learning rate rises over half": _train(warmup_steps=UPDATES // 2),
    "KL to the start, 0.03": _train(beta=0.03),
    "groups of 32": _train(num_generations=32),
    "temperature 1.3": _train(temperature=1.3),
    "`trial_cv`": _train(advantage_estimator="trial_cv"),
}


def start_of(name: str, folder: Path, steps: int = 400) -> Path:
    """The weights of a start."""
    first, *second = STARTS[name]
    begun = made_start([first], folder / f"{first}", steps=steps)
    if not second:
        return begun
    return made_start(second, folder / name, begun=begun, steps=steps // 4, learning_rate=1e-3)


def run(
    start: str,
    rescue: str,
    seed: int,
    folder: Path,
    *,
    updates: int = UPDATES,
    games: int = EVALUATED,
) -> dict[str, Any]:
    """The figures of one cell."""
    model, tokenizer = loaded(folder)
    began, rewards = time.process_time(), []
    for number, stage in enumerate(RESCUES[rescue]):
        if isinstance(stage, Imitate):
            rewards.append(_imitate(stage, start, model, tokenizer, updates, 10 * seed + number))
        else:
            batch = stage.train.get("per_device_train_batch_size", ROLLOUTS)
            updated = round(stage.share * updates * ROLLOUTS / batch)
            rewards += train(model, tokenizer, stage.game, updated, seed, **stage.train)
    return {
        "start": start,
        "rescue": rescue,
        "seed": seed,
        **measure(model, tokenizer, {}, games),
        "cpu_seconds": round(time.process_time() - began, 1),
        "training": [round(reward, 3) for reward in rewards],
    }


def _imitate(
    stage: Imitate, start: str, model: Any, tokenizer: Any, updates: int, seed: int
) -> float:
    teacher = STARTS[start][-1] if stage.teacher else None
    trials = TEACHER_TRIALS if teacher else round(stage.share * updates * ROLLOUTS)
    return imitate_successes(
        model, tokenizer, trials, seed=seed, teacher=teacher, paid_only=stage.paid
    )


def main() -> None:
    """Run the cells that have no result, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", action="append", help="only rescues with this in their name")
    parser.add_argument("--start", action="append", choices=STARTS, help="only this start")
    parser.add_argument("--cache", type=Path, help="a folder that keeps the starts")
    parser.add_argument("--report", action="store_true", help="only write the page")
    args = parser.parse_args()
    store = Store(RESULTS / "explore-hard-starts.json")
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        for seed in range(0 if args.report else args.seeds):
            for rescue in RESCUES:
                if not args.only or any(part in rescue for part in args.only):
                    for start in args.start or STARTS:
                        cell(store, start, rescue, seed, cache)
    write_page(store)


def cell(store: Store, start: str, rescue: str, seed: int, cache: Path) -> None:
    """Run a cell, and before the first one of a start measure the start itself."""
    known = {(r["start"], r["rescue"], r["seed"]) for r in store.read()}
    folder = start_of(start, cache)
    if (start, UNTRAINED, 0) not in known:
        figures = measure(*loaded(folder), {}, EVALUATED)
        store.add({"start": start, "rescue": UNTRAINED, "seed": 0, **figures})
    if (start, rescue, seed) not in known:
        store.add(run(start, rescue, seed, folder))


def table(results: Sequence[Mapping[str, Any]], start: str) -> str:
    """What each rescue made of a start."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for rescue in (UNTRAINED, *RESCUES):
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


def write_page(store: Store) -> None:
    """Write the page from the stored results and the remarks."""
    results = store.read()
    parts = [
        f"## {start}\n\n{table(results, start)}\n"
        for start in STARTS
        if any(r["start"] == start for r in results)
    ]
    trials = UPDATES * ROLLOUTS
    text = (
        "# Hard starts in Explore\n\n"
        "Written by `python experiments/explore_hard.py` from `explore-hard-starts.json` and "
        "`explore-hard-starts-remarks.md`; `RESCUES` in it has the settings.\n\n"
        f"Each run spends {trials:,} trials of the preset `explore` ({2 * trials:,} environment "
        f"steps; by default {UPDATES} updates of {ROLLOUTS}) on one start, and is evaluated on "
        f"{EVALUATED} held-out trials at temperature 1. Best play earns 1, best play without "
        "exploring 0.25, chance 0.125. *Looks* is the share of free shots that look, *uses* the "
        "mean score of the trials that looked first, ± Student's 95 % interval over the seeds. "
        "The starts imitate the careless teacher for 400 updates, `after 70 %` another one that "
        "uses 70 % of what it saw, and then for 100 updates this one.\n\n"
    )
    text += "".join(parts) + remarks("explore-hard-starts")
    (RESULTS / "explore-hard-starts.md").write_text(text.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
