"""Learning from branches beside other estimators, with equal environment steps, actions and time.

    python experiments/branch_curves.py ENV [--seed N] [--report]

An environment and its recipe are those of the board (`credit_board.RECIPES`), or the four games of
textworld_credit.py, with a budget of `ENV_STEPS` environment steps, repeated ones included. Each
seed has a warm start of its own, from which all estimators of that seed begin; it stays in the
benchmarks' cache. In Twenty Questions all seeds begin with the package's trained model. The curve
of a run has for each update the actions of the policy, the steps that branches repeated, the mean
reward, and the CPU seconds of one thread, which in the first update include the trainer's
construction. Results are kept in docs/results/branch-curves.json, and a run that is there is not
made again.

The mean reward is that of the trunks; a trunk that goes on after the action that its branch
replaces is averaged with it. So it is unbiased: rollouts that are played in place of the branch of
a shorter trunk would count short trunks twice.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from itertools import pairwise
from pathlib import Path
from typing import Any

import credit_board as board
import numpy as np
import textworld_credit
import torch
import transformers
from explore_runs import Store

from agentsgym.types import Rollout

BRANCH, OTHERS = "branch", ("rloo", "step_return", "trial")
ENV_STEPS: Mapping[str, int] = {"Mastermind": 16_000, "TwentyQuestions": 16_000, "TextWorld": 2_000}
TEXTWORLD = board.Recipe(
    textworld_credit.GAME,
    env_steps=ENV_STEPS["TextWorld"],
    rollouts=32,
    group=8,
    learning_rate=1e-3,
    action_tokens=12,
    eval_episodes=32,
)
AXES = ("environment steps", "actions", "seconds")
STORE = Store(board.RESULTS / "branch-curves.json")


class Curve(board.Budget):
    """The curve of a run, which ends when the budget is spent."""

    def __init__(self, env_steps: int, size: int) -> None:
        super().__init__(env_steps)
        self.size = size
        self.points: list[tuple[int, int, float]] = []
        self.clock = [time.process_time()]

    def __call__(self, rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> None:
        """Take in a generation."""
        repeated = sum(one.replayed for one in rollouts)
        steps = sum(len(one.steps) for one in rollouts)
        score = round(mean_reward(rollouts, self.size), 5)
        self.played.append((steps, score))
        self.points.append((steps - repeated, repeated, score))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the time, and stop."""
        self.clock.append(time.process_time())
        super().on_step_end(args, state, control, **kwargs)

    @property
    def curve(self) -> list[tuple[float, ...]]:
        """Actions, repeated steps, mean reward and CPU seconds of each update."""
        spent = [round(after - before, 3) for before, after in pairwise(self.clock)]
        return [(*point, seconds) for point, seconds in zip(self.points, spent, strict=True)]


def mean_reward(rollouts: Sequence[Rollout], size: int) -> float:
    """The mean over trunks of their reward and that of their branches; `size` of both together."""
    means = []
    for k in range(0, len(rollouts), size):
        trunk, *others = rollouts[k : k + size]
        own = [trunk, *(one for one in others if one.replayed)]
        means.append(np.mean([one.final_reward for one in own]))
    return float(np.mean(means))


def start_of(cell: board.Cell) -> Path:
    """The folder of the weights that a run begins with."""
    cache = board.common.CACHE / "branch-curves" / f"seed-{cell.seed}"
    if cell.env != "TextWorld":
        return board.start_of(cell.env, cache, cell.seed)
    if not (cache / cell.env / "tokenizer.json").exists():
        textworld_credit.make_start(cache / cell.env, cell.seed)
    return cache / cell.env


def run(cell: board.Cell) -> dict[str, Any]:
    """One run: its curve, and the held-out score at the end."""
    model, tokenizer = board.load(start_of(cell))
    start = board.measure(cell, model, tokenizer, quick=False)
    torch.manual_seed(cell.seed)
    budget = Curve(ENV_STEPS[cell.env], 2 if cell.estimator == BRANCH else 1)
    board.train(cell, model, tokenizer, quick=False, budget=budget)
    score = board.measure(cell, model, tokenizer, quick=False)
    return asdict(cell) | {"start": start, "score": score, "curve": budget.curve}


# -- the table -------------------------------------------------------------------------------------


def measures(curve: Any, limits: Any) -> dict[str, float]:
    """The mean reward until each limit, in the order of `AXES`, and over the last quarter before
    it. `curve` has the shape (updates, 4)."""
    figures = {}
    for what, sizes, limit in zip(AXES, axes_of(curve), limits, strict=True):
        ends = np.concatenate([[0.0], np.cumsum(sizes)])
        sums = np.concatenate([[0.0], np.cumsum(sizes * curve[:, 2])])
        early, total = np.interp([0.75 * limit, limit], ends, sums)
        figures[what] = total / limit
        figures[f"{what}, last quarter"] = (total - early) / (limit / 4)
    return figures


def axes_of(curve: Any) -> Any:
    """What each update took, on each axis; shape (3, updates)."""
    return np.stack([curve[:, 0] + curve[:, 1], curve[:, 0], curve[:, 3]])


def report(env: str) -> str:
    """The figures of `branch`, and what they are over those of the others, seed by seed."""
    runs = [dict(r) for r in STORE.read() if r["env"] == env]
    limits = np.min([axes_of(np.array(r["curve"])).sum(axis=1) for r in runs], axis=0)
    for r in runs:
        r |= measures(np.array(r["curve"]), limits)
    groups = {
        name: sorted((r for r in runs if r["estimator"] == name), key=lambda r: r["seed"])
        for name in (BRANCH, *OTHERS)
    }
    base, rows = groups[BRANCH], []
    for key in ("score", *measures(np.array(base[0]["curve"]), limits)):
        cells = [board.student([r[key] for r in base])]
        for name in OTHERS:
            by_seed = {r["seed"]: r[key] for r in groups[name]}
            apart = [r[key] - by_seed[r["seed"]] for r in base if r["seed"] in by_seed]
            cells.append(board.student(apart) + shown(apart) if apart else "")
        rows.append((key, *cells))
    equal = ", ".join(f"{limit:,.0f} {what}" for what, limit in zip(AXES, limits, strict=True))
    starts = ", ".join(f"{r['start']:.3f}" for r in base)
    head = ("mean reward until", BRANCH, *(f"over `{name}`" for name in OTHERS))
    return f"Starts: {starts}. Equal: {equal}.\n\n{board.table(head, rows)}"


def shown(apart: Sequence[float]) -> str:
    """A remark if the interval of these differences has zero; empty otherwise."""
    is_shown = len(apart) > 1 and abs(float(np.mean(apart))) > board.half_width(apart)
    return "" if is_shown else " (no difference shown)"


def main() -> None:
    """Make the runs that are missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("env", choices=ENV_STEPS)
    parser.add_argument("--seed", type=int, action="append", help="instead of 0, 1 and 2")
    parser.add_argument("--report", action="store_true", help="only print the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    board.RECIPES = {**board.RECIPES, "TextWorld": TEXTWORLD}
    transformers.utils.logging.disable_progress_bar()
    for seed in () if args.report else args.seed or range(board.SEEDS):
        for name in (BRANCH, *OTHERS):
            cell = board.Cell(args.env, name, seed)
            if astuple(cell) not in {(r["env"], r["estimator"], r["seed"]) for r in STORE.read()}:
                STORE.add(run(cell))
    print(report(args.env))


if __name__ == "__main__":
    main()
