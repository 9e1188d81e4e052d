"""What the preset `explore-many` explores that it never saw: words, sentences, families of games.

    python experiments/explore_many.py [--only CELL] [--seed N] [--starts FOLDER] [--report]

Each cell is the run `agentsgym train explore-many seed=SEED warm_start.seed=SEED SETTINGS`; cells
with the same warm start share it. Its model and the one after GRPO play held-out tasks of all
families in words that were never trained on. Results are kept in docs/results/explore-many.json,
and a cell that is there is not run again; their tables are printed and the picture is drawn at the
end (`--report` does only that).
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
from explore import mean_of
from explore_runs import RESULTS, Store
from matplotlib.figure import Figure

from agentsgym import make
from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.envs.exploration.families import FAMILIES
from agentsgym.evaluation import rollout_requests
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import play
from agentsgym.runs import Progress, RunConfig, load_config, train_run
from agentsgym.runs.files import RunDirectory, read_metrics
from agentsgym.runs.models import load_policy
from agentsgym.runs.resuming import load_trained
from agentsgym.types import Rollout, SamplingParams

TASKS = 64
"""Held-out tasks of each family."""
FIRST_SEED = 1_000_000
PRESET = load_config("explore-many", {})
TRAINED: Sequence[str] = PRESET.env_config["families"]
KNOWN_USE: Sequence[str] = PRESET.env_config["eval_families"]
NEW_USE = [
    name
    for name, family in FAMILIES.items()
    if family.use not in {FAMILIES[t].use for t in TRAINED}
]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """A row of the tables: settings that differ from the preset's, of the warm start and GRPO
    (`start`, which include the families) and of GRPO alone."""

    name: str
    start: Settings = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)

    @property
    def families(self) -> Sequence[str]:
        """What it trains on."""
        trained: Sequence[str] = self.start.get("env_config.families", TRAINED)
        return trained

    def config(self, seed: int, **given: Any) -> RunConfig:
        """The run."""
        seeds = {"seed": seed, "warm_start.seed": seed, "threads": 1}
        return load_config("explore-many", {**seeds, **self.start, **self.settings, **given})


def _families(*names: str) -> Settings:
    return {
        "env_config.families": list(names),
        "warm_start.first_steps": 0,
        "warm_start.first_env_config": {},
    }


WORDS = Cell(
    "new words, two families",
    {
        **_families("place", "password"),
        "warm_start.steps": 1000,
        "warm_start.model.layers": 2,
        "warm_start.model.induction_heads": 1,
    },
    {
        "train.max_steps": 480,
        "train.per_device_train_batch_size": 64,
        "train.eval_strategy": "no",
    },
)
MANY = Cell("the preset")
CELLS = (
    WORDS,
    MANY,
    Cell("`step_return`", {}, {"train.advantage_estimator": "step_return"}),
    Cell("one episode", {}, {"env_config.episodes_per_trial": 1, "env_config.free_shots": 0}),
    Cell("1 family", _families("place")),
    Cell("3 families", _families("place", "sign", "caller")),
    Cell("16 families", {"env_config.families": ["train"]}),
    Cell(
        "width 64", {"warm_start.model.hidden_size": 64, "warm_start.model.intermediate_size": 128}
    ),
    Cell(
        "width 192",
        {"warm_start.model.hidden_size": 192, "warm_start.model.intermediate_size": 384},
    ),
)


# -- runs ------------------------------------------------------------------------------------------


class _Seconds(Progress):
    """Says how far a warm start is."""

    def warm_start(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        if step % 500 == 0:
            print(f"warm start: {step} of {steps}, loss {values['loss']:.3f}", flush=True)


def start_of(cell: Cell, seed: int, folder: Path) -> Path:
    """The warm-started model, made if it is not there."""
    shown = "-".join(f"{key}-{value}" for key, value in sorted(cell.start.items())) or "preset"
    path = folder / f"start-{seed}-{''.join(c if c.isalnum() else '-' for c in shown)}"
    if not (path / "seconds").is_file():
        began = time.process_time()
        policy = load_policy(cell.config(seed), _Seconds())
        policy.model.save_pretrained(path)
        policy.tokenizer.save_pretrained(path)
        (path / "seconds").write_text(str(time.process_time() - began))
    return path


def run(cell: Cell, seed: int, starts: Path) -> dict[str, Any]:
    """The figures of one run."""
    torch.set_num_threads(1)
    start = start_of(cell, seed, starts)
    with tempfile.TemporaryDirectory() as folder:
        model = {"path": str(start), "dtype": "float32"}  # as the model tiny
        config = cell.config(seed, output_dir=folder, model=model)
        config = RunConfig.model_validate(config.model_dump() | {"warm_start": {}})
        began = time.process_time()
        if train_run(config).status == "interrupted":
            raise SystemExit(f"{cell.name}, seed {seed}: interrupted")
        seconds = time.process_time() - began
        directory = RunDirectory(Path(folder))
        lines = list(read_metrics(directory.metrics))
        before, after = load_trained(config, start), load_trained(config, directory.model)
    return {
        "cell": cell.name,
        "seed": seed,
        "parameters": sum(p.numel() for p in after.model.parameters()),
        "cpu_seconds": [round(float((start / "seconds").read_text()), 1), round(seconds, 1)],
        "before": measured(before.model, before.tokenizer, cell),
        "after": measured(after.model, after.tokenizer, cell),
        "training": [round(one["reward"], 3) for one in lines if one["phase"] == "train"],
        "evaluations": [
            [one["step"], round(one["eval_reward"], 4)] for one in lines if "eval_reward" in one
        ],
    }


# -- figures ---------------------------------------------------------------------------------------


def measured(model: Any, tokenizer: Any, cell: Cell) -> dict[str, Any]:
    """Of each family the figures with new words, and of the trained ones those with new sentences,
    too."""
    every = {name: figures(model, tokenizer, name, "train") for name in FAMILIES}
    return {
        "words": every,
        "patterns": {name: figures(model, tokenizer, name, "test") for name in cell.families}
        if cell.families != ["train"]
        else {},
    }


def figures(model: Any, tokenizer: Any, family: str, patterns: str) -> dict[str, float]:
    """Of held-out tasks of a family: the share of the value of information, the score, informing
    actions in free shots and in scored episodes, malformed actions."""
    config = {"explain_actions": False}
    task = {"family": family, "words": "test", "patterns": patterns}
    rows = [
        {
            "env_class_path": "ExploreMany",
            "env_config": config,
            "task_data": {**task, "seed": FIRST_SEED + number},
        }
        for number in range(TASKS)
    ]
    engine = EmbeddedEngine(model.eval(), tokenizer, capacity=TASKS)
    agent = DirectOutputAgent(engine, SamplingParams(PRESET.train.max_action_tokens, 1.0))
    rollouts = play(rollout_requests(rows, TASKS, seed=0), agent, EnvPool(tokenizer))
    env = make("ExploreMany", None, config)
    best = np.mean([env.player_of(one.task_data).value() for one in rollouts])
    never = np.mean([env.player_of(one.task_data, informs=False).value() for one in rollouts])
    score = np.mean([one.final_reward for one in rollouts])
    return {
        "information": round(float((score - never) / (best - never)), 3),
        "score": round(float(score), 3),
        "looks": _share(rollouts, "informing", scored=False),
        "scored_looks": _share(rollouts, "informing", scored=True),
        "malformed": _share(rollouts, "malformed", scored=True),
    }


def _share(rollouts: Sequence[Rollout], key: str, *, scored: bool) -> float:
    """The share of actions of free shots or of scored episodes that are informing, or malformed."""
    steps = [step for one in rollouts for step in one.episodes[int(scored)].steps]
    marks = [step.malformed if key == "malformed" else step.info[key] for step in steps]
    return round(float(np.mean([bool(mark) for mark in marks])), 3)


# -- the tables ---------------------------------------------------------------------------------


def information(one: Mapping[str, Any], names: Sequence[str], kind: str = "words") -> float:
    """The mean share of the value of information over families."""
    return float(np.mean([one[kind][name]["information"] for name in names]))


def of_cell(results: Sequence[Mapping[str, Any]], cell: Cell) -> list[Mapping[str, Any]]:
    """The runs of a cell, by their seeds."""
    return sorted((r for r in results if r["cell"] == cell.name), key=lambda r: int(r["seed"]))


def groups_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Each cell: the mean share on what it was trained on and on the held-out families."""
    lines = [
        [
            "",
            "n",
            "parameters",
            "trained families",
            "new families, the preset's kinds of use",
            "its seeds",
            "new families, other kinds",
            "CPU seconds: warm start, GRPO",
        ]
    ]
    lines.append(["---"] * len(lines[0]))
    for cell in CELLS[1:]:
        runs = of_cell(results, cell)
        if cell is MANY and runs:
            before = [r["before"] for r in runs]
            lines.append(_row("its warm start alone", cell, before, runs, 0))
        if runs:
            lines.append(_row(cell.name, cell, [r["after"] for r in runs], runs, 1))
    return _markdown(lines)


def _row(
    name: str,
    cell: Cell,
    figures: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    trained: int,
) -> list[str]:
    known = [information(one, KNOWN_USE) for one in figures]
    families = list(cell.families)
    if families == ["train"]:
        families = [name for name, family in FAMILIES.items() if family.part == "train"]
    other = [name for name in NEW_USE if name not in families]
    seconds = [r["cpu_seconds"] for r in runs]
    return [
        name,
        str(len(runs)),
        f"{runs[0]['parameters'] / 1e6:.2f} M",
        mean_of([information(one, families) for one in figures]),
        mean_of(known),
        ", ".join(f"{value:.2f}" for value in known),
        mean_of([information(one, other) for one in figures]),
        ", ".join(f"{np.median([s[k] for s in seconds]):.0f}" for k in range(1 + trained)),
    ]


def families_table(results: Sequence[Mapping[str, Any]]) -> str:
    """The preset's figures of each family."""
    runs = of_cell(results, MANY)
    lines = [["family", "use", "", "before", "after", "looks", "in scored episodes", "malformed"]]
    lines.append(["---"] * len(lines[0]))
    order = [*TRAINED, *KNOWN_USE, *(name for name in FAMILIES if name not in TRAINED)]
    for name in dict.fromkeys(order):
        before = [r["before"]["words"][name] for r in runs]
        after = [r["after"]["words"][name] for r in runs]
        role = "trained on" if name in TRAINED else "new use" if name in NEW_USE else "known use"
        shares = [
            mean_of([one[key] for one in after]) for key in ("looks", "scored_looks", "malformed")
        ]
        shown = [mean_of([one["information"] for one in part]) for part in (before, after)]
        lines.append([f"`{name}`", FAMILIES[name].use, role, *shown, *shares])
    return _markdown(lines)


def words_table(results: Sequence[Mapping[str, Any]]) -> str:
    """The figures of the cells whose families were trained on, with new words and new sentences."""
    lines = [
        ["", "n", "new words", "its seeds", "new words and sentences", "its seeds", "CPU seconds"]
    ]
    lines.append(["---"] * len(lines[0]))
    for cell in (WORDS, MANY):
        runs = of_cell(results, cell)
        if not runs:
            continue
        row = [cell.name, str(len(runs))]
        for kind in ("words", "patterns"):
            values = [information(r["after"], cell.families, kind) for r in runs]
            row += [mean_of(values), ", ".join(f"{value:.3f}" for value in values)]
        lines.append([*row, ", ".join(f"{sum(r['cpu_seconds']):.0f}" for r in runs)])
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def draw(results: Sequence[Mapping[str, Any]], picture: Path) -> None:
    """The score on the held-out families with a known use over the CPU time of training: before
    GRPO that of the tables, then the run's evaluations."""
    plot = (figure := Figure(figsize=(8.0, 4.2), dpi=150, layout="constrained")).subplots()
    for one in of_cell(results, MANY):
        first, second = one["cpu_seconds"]
        steps = len(one["training"])
        points = [
            (first, _score(one["before"])),
            *((first + second * step / steps, reward) for step, reward in one["evaluations"]),
        ]
        plot.plot(
            *zip(*((x / 60, y) for x, y in points), strict=True),
            "o-",
            markersize=3,
            label=f"seed {one['seed']}",
        )
    plot.set_xlabel("minutes of CPU")
    plot.set_ylabel("score on families never trained on")
    plot.set_ylim(0, 1)
    plot.grid(True, alpha=0.25)
    plot.legend(frameon=False)
    figure.savefig(picture)


def _score(one: Mapping[str, Any]) -> float:
    return float(np.mean([one["words"][name]["score"] for name in KNOWN_USE]))


def report(store: Store) -> None:
    """Draw the picture and print the tables of the stored results."""
    results = store.read()
    draw(results, store.path.with_suffix(".png"))
    print(words_table(results), groups_table(results), families_table(results), sep="\n")


def main() -> None:
    """Run what has no result, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, action="append", help="instead of 0, 1 and 2")
    parser.add_argument("--starts", type=Path, help="keep the warm-started models in this folder")
    parser.add_argument("--only", action="append", help="only the cells with these names")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    args = parser.parse_args()
    store = Store(RESULTS / "explore-many.json")
    with tempfile.TemporaryDirectory() as scratch:
        for seed in () if args.report else args.seed or (0, 1, 2):
            for cell in CELLS:
                done = {(r["cell"], r["seed"]) for r in store.read()}
                if (not args.only or cell.name in args.only) and (cell.name, seed) not in done:
                    store.add(run(cell, seed, args.starts or Path(scratch)))
    if not args.only:
        report(store)


if __name__ == "__main__":
    main()
