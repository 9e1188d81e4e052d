"""What the preset `explore` learns with other estimators and other trials, three seeds each.

    python experiments/explore.py [--seed N] [--only NAME] [--starts FOLDER] [--report]

Each cell is the run `agentsgym train explore seed=SEED SETTINGS` with one thread. The warm start
does not depend on the seed or the estimator, so it is made once for each environment. Results are
kept in docs/results/explore.json, and a cell that is there is not run again; their
table is printed at the end (`--report` does only that).
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

from agentsgym import make
from agentsgym.credit import ESTIMATORS
from agentsgym.evaluation.intervals import t_quantile
from agentsgym.runs import Progress, RunConfig, load_config, train_run
from agentsgym.runs.files import RunDirectory, read_metrics
from agentsgym.runs.models import load_policy

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
HEAD = (
    "",
    "n",
    "score",
    "its seeds",
    "best without exploring",
    "best",
    "in training",
    "looks in free shots",
    "looks in scored episodes",
    "malformed",
    "start",
    "its looks",
)


@dataclass(frozen=True)
class Cell:
    """A row of the table: what is added to `agentsgym train explore`."""

    name: str
    settings: Mapping[str, Any]

    @property
    def env_config(self) -> Mapping[str, Any]:
        """The settings of the environment."""
        return {
            key.removeprefix("env_config."): value
            for key, value in self.settings.items()
            if key.startswith("env_config.")
        }

    @property
    def command(self) -> str:
        """The command of seed 0."""
        given = " ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"agentsgym train explore threads=1 {given}".strip()


def _estimators() -> list[Cell]:
    names = [n for n in ("trial", "step_return", "grpo", "rloo", "trial_cv") if n in ESTIMATORS]
    return [Cell(f"`{name}`", {"train.advantage_estimator": name}) for name in names]


CELLS = (
    *_estimators(),
    Cell("`branch`", {"train.advantage_estimator": "branch", "train.branches": 1}),
    Cell("`trial`, `carry=summary`", {"env_config.carry": "summary"}),
    Cell("`trial`, no carry", {"env_config.carry": "none"}),
    Cell("`trial`, one episode", {"env_config.episodes_per_trial": 1}),
)


def start_of(cell: Cell, folder: Path) -> Path:
    """The warm-started model of a cell's environment, made if it is not there."""
    shown = "-".join(f"{key}-{value}" for key, value in sorted(cell.env_config.items()))
    path = folder / f"start-{shown or 'base'}"
    if not path.is_dir():
        config = load_config("explore", {**cell.settings, "threads": 1})
        _one_thread()
        policy = load_policy(config, Progress())
        policy.model.save_pretrained(path)
        policy.tokenizer.save_pretrained(path)
    return path


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def run(cell: Cell, seed: int, folder: Path, starts: Path) -> dict[str, Any]:
    """The figures of one run, in a new directory of `folder`."""
    model = str(start_of(cell, starts))
    output = tempfile.mkdtemp(dir=folder)
    given = {"seed": seed, "threads": 1, "output_dir": output, "model": model, **cell.settings}
    config = load_config("explore", given)
    config = RunConfig.model_validate(config.model_dump() | {"warm_start": {}})
    began = time.process_time()
    summary = train_run(config)
    after, before = summary.after, summary.before
    assert after is not None and before is not None
    lines = list(read_metrics(RunDirectory(Path(output)).metrics))
    rewards = [line["reward"] for line in lines if line["phase"] == "train"]
    metrics = after.metrics
    return {
        "cell": cell.name,
        "seed": seed,
        "score": after.reward,
        "ci95": after.reward_ci95,
        "start": before.reward,
        "auc": float(np.mean(rewards)),
        "looks_free": metrics.get("informing/free_shots"),
        "looks_scored": metrics.get("informing/scored", metrics.get("informing")),
        "start_looks": before.metrics.get("informing/free_shots", before.metrics["informing"]),
        "first": after.trial.get("episode_1/reward"),
        "malformed": metrics["malformed"],
        "cpu_seconds": time.process_time() - began,
        "training": [round(reward, 5) for reward in rewards],
    }


def mean_of(values: Sequence[float | None]) -> str:
    """The mean with Student's 95 % half-width over seeds; "" where a figure is not known."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return ""
    mean = float(np.mean(known))
    if len(known) < 2:
        return f"{mean:.3f}"
    half = t_quantile(0.975, len(known) - 1) * float(np.std(known, ddof=1)) / len(known) ** 0.5
    return f"{mean:.3f} ± {half:.3f}"


def bests(cell: Cell) -> tuple[float, float]:
    """The exact scores of best play without exploring and of best play."""
    env = make("Explore", None, dict(cell.env_config))
    return env.player(informs=False).value(), env.player().value()


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The rows of all cells that have results."""
    rows = []
    for cell in CELLS:
        runs = sorted((r for r in results if r["cell"] == cell.name), key=lambda r: r["seed"])
        if not runs:
            continue
        never, best = bests(cell)
        rows.append(
            (
                cell.name,
                str(len(runs)),
                mean_of([r["score"] for r in runs]),
                ", ".join(f"{r['score']:.3f}" for r in runs),
                f"{never:.3f}",
                f"{best:.3f}",
                *(
                    mean_of([r[key] for r in runs])
                    for key in ("auc", "looks_free", "looks_scored", "malformed")
                ),
                f"{runs[0]['start']:.3f}",
                f"{runs[0]['start_looks']:.3f}",
            )
        )
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def report() -> None:
    """Print the table of the stored results."""
    print(table(_stored()))


def _keep(results: Sequence[Mapping[str, Any]]) -> None:
    lines = ",\n".join(map(json.dumps, results))
    (RESULTS / "explore.json").write_text(f"[\n{lines}\n]\n")


def _stored() -> list[dict[str, Any]]:
    path = RESULTS / "explore.json"
    results: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []
    return results


def main() -> None:
    """Run the cells that have no result, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, action="append", help="instead of 0, 1 and 2")
    parser.add_argument("--starts", type=Path, help="keep the warm-started models in this folder")
    parser.add_argument("--only", action="append", help="only cells with this in their name")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for seed in () if args.report else args.seed or (0, 1, 2):
            for cell in CELLS:
                chosen = not args.only or any(part in cell.name for part in args.only)
                done = {(r["cell"], r["seed"]) for r in _stored()}
                if chosen and (cell.name, seed) not in done:
                    result = run(cell, seed, Path(folder), args.starts or Path(folder))
                    _keep([*_stored(), result])
                    print(f"{cell.name}, seed {seed}: {result['score']:.3f}", flush=True)
    report()


if __name__ == "__main__":
    main()
