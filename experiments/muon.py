"""Whether Muon learns the quickstart in fewer updates than AdamW: docs/results/muon.md.

    python experiments/muon.py [--report]

Each run is `agentsgym train quickstart seed=SEED threads=1 train.max_steps=150`, with and without
`train.muon=true`, at two learning rates and with seeds 0 to 2; both begin with the package's
trained model. A run that stands in docs/results/muon.json is not made again.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
from explore import mean_of
from explore_runs import RESULTS, Store, remarks

from agentsgym.runs import load_config, train_run
from agentsgym.runs.files import RunDirectory, read_metrics

UPDATES, WINDOW = 150, 10
THRESHOLDS = 0.6, 0.8
CELLS = [(muon, rate) for rate in (1e-3, 2e-3) for muon in (False, True)]


def run(muon: bool, rate: float, seed: int) -> dict[str, Any]:
    """The share of games that were won in each update, and the CPU time."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "seed": seed,
            "threads": 1,
            "output_dir": folder,
            "train.muon": muon,
            "train.learning_rate": rate,
            "train.max_steps": UPDATES,
            "train.eval_strategy": "no",
            "max_seconds": 3600,
        }
        began = time.process_time()
        if train_run(load_config("quickstart", given)).status == "interrupted":
            raise SystemExit("interrupted")
        seconds = time.process_time() - began
        lines = list(read_metrics(RunDirectory(Path(folder)).metrics))
    wins = [round(line["win_rate"], 4) for line in lines if line["phase"] == "train"]
    cell = {"muon": muon, "learning_rate": rate, "seed": seed}
    return {**cell, "cpu_seconds": round(seconds, 1), "wins": wins}


def reached(wins: Sequence[float], threshold: float) -> float:
    """The first update at which the mean of the last `WINDOW` is at the threshold, or nan."""
    means = np.convolve(wins, np.ones(WINDOW) / WINDOW, "valid")
    at = np.flatnonzero(means >= threshold)
    return float(at[0] + WINDOW) if len(at) else np.nan


def _updates(runs: Sequence[Mapping[str, Any]], threshold: float) -> str:
    at = [reached(one["wins"], threshold) for one in runs]
    if np.isnan(at).any():
        return f"{np.isfinite(at).sum()} of {len(at)} runs"
    return mean_of(at)


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """The page."""
    head = ["optimizer", "learning rate", "n", *(f"updates to {t:.0%}" for t in THRESHOLDS)]
    head += [f"wins in the last {WINDOW} updates", "CPU seconds"]
    lines = [head, ["---"] * len(head)]
    for muon, rate in sorted(CELLS):
        runs = [r for r in results if (r["muon"], r["learning_rate"]) == (muon, rate)]
        if not runs:
            continue
        last = [float(np.mean(one["wins"][-WINDOW:])) for one in runs]
        seconds = np.median([one["cpu_seconds"] for one in runs])
        row = ["Muon" if muon else "AdamW", f"{rate:g}", str(len(runs))]
        row += [_updates(runs, threshold) for threshold in THRESHOLDS]
        lines.append([*row, mean_of(last), f"{seconds:.0f}"])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        "# Muon and AdamW in the quickstart\n\n"
        "Written by `python experiments/muon.py` from `muon.json` and `muon-remarks.md`.\n\n"
        f"{UPDATES} updates on 256 games each; all runs begin with the same model. *Updates to* a "
        f"share of games won: the first at which the mean of {WINDOW} updates is there. ± is "
        "Student's 95 % interval over the seeds; at a learning rate the runs of both optimizers "
        f"have the same seeds.\n\n{table}\n\n{remarks('muon')}"
    )


def main() -> None:
    """Run what has no result, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--report", action="store_true", help="only write the page")
    args = parser.parse_args()
    store = Store(RESULTS / "muon.json")
    done = {(r["muon"], r["learning_rate"], r["seed"]) for r in store.read()}
    for muon, rate in () if args.report else CELLS:
        for seed in range(3):
            if (muon, rate, seed) not in done:
                store.add(run(muon, rate, seed))
    (RESULTS / "muon.md").write_text(page(store.read()).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
