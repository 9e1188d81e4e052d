"""Draws docs/credit.png: what each estimator pays in one small group, and which one to take.

python experiments/credit_picture.py
"""

from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from agentsgym.credit import ESTIMATORS, StepTable
from agentsgym.credit.table import objects

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FILE = Path(__file__).resolve().parents[1] / "docs" / "credit.png"

# (arm, won) of the pulls of each rollout: two of the free shot, two of the scored episode.
GROUP = {
    "A tries both arms": [("red", 0), ("green", 1), ("green", 1), ("green", 1)],
    "B tries one, then the other": [("red", 0), ("red", 0), ("red", 0), ("green", 1)],
    "C stays with one": [("red", 0), ("red", 0), ("red", 0), ("red", 0)],
}
ROWS = {
    "reward": None,
    'grpo, scale "none"': partial(ESTIMATORS["grpo"], scale_rewards="none"),
    "rloo": ESTIMATORS["rloo"],
    "step_return": ESTIMATORS["step_return"],
    "gigpo": ESTIMATORS["gigpo"],
    "trial, trial_gamma 0": partial(ESTIMATORS["trial"], trial_gamma=0.0),
    "trial": ESTIMATORS["trial"],
}
CHOICES = [
    ("Several episodes of one task,\nearlier ones to be learned from?", '"trial"'),
    ("Rewards within the episode, or does\nthe agent decide when to stop?", '"step_return"'),
    ("Do rollouts of a group often meet\nthe same state (puzzles, houses)?", '"gigpo"'),
    ("One reward at the end,\nnothing else known?", '"rloo", or "grpo"\n(scale_rewards="none")'),
]


def table() -> StepTable:
    """The group as the estimators see it."""
    pulls = [pull for rollout in GROUP.values() for pull in rollout]
    steps = np.arange(len(pulls))
    place = steps % 4
    won = np.array([won for _, won in pulls], dtype=np.float64) / 2
    return StepTable(
        group=np.zeros(3, dtype=np.int64),
        index=np.arange(3),
        live=np.ones(3, dtype=np.bool_),
        final_reward=won.reshape(3, 2, 2)[:, 1].sum(axis=1),
        env=np.array(["Bandit"] * 3, dtype=np.object_),
        rollout=steps // 4,
        episode=place // 2,
        step=place % 2,
        reward=won,
        score_weight=(place // 2).astype(np.float64),
        penalty=np.zeros(12),
        tokens=np.ones(12, dtype=np.int64),
        reflection=np.zeros(12, dtype=np.bool_),
        anchor=np.array(_anchors(), dtype=np.object_),
        action=objects([()] * 12),
        choices=objects([()] * 12),
        value=np.zeros(12),
        trunk=np.arange(3),
        replayed=np.zeros(12, dtype=np.bool_),
    )


def _anchors() -> list[str]:
    """What an agent knows before each pull, whatever the order."""
    return [
        f"{k // 2}/{k % 2}/{sorted(rollout[:k])}" for rollout in GROUP.values() for k in range(4)
    ]


def draw_payments(axis: Any) -> None:
    """Estimators × steps, each with its advantage."""
    group = table()
    values = np.array([e(group) if e else group.reward * group.score_weight for e in ROWS.values()])
    axis.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        axis.text(column, row, f"{value:+.2f}" if value else "0", ha="center", va="center")
    pulls = [f"{arm}\n{'won' if won else 'lost'}" for r in GROUP.values() for arm, won in r]
    axis.set_xticks(range(12), pulls)
    axis.set_yticks(range(len(ROWS)), ROWS)
    axis.tick_params(length=0)
    for number, name in enumerate(GROUP):
        axis.text(4 * number + 1.5, -1.35, name, ha="center", weight="bold")
        axis.text(4 * number + 0.5, -0.8, "free shot", ha="center", color="0.4")
        axis.text(4 * number + 2.5, -0.8, "scored", ha="center", color="0.4")
        axis.axvline(4 * number + 1.5, color="white", lw=2)
        axis.axvline(4 * number - 0.5, color="black", lw=2)


def draw_choices(axis: Any) -> None:
    """Questions from left to right; the first yes decides."""
    axis.set(xlim=(0, 4), ylim=(0, 2))
    axis.axis("off")
    question = {"boxstyle": "round,pad=0.5", "fc": "0.95", "ec": "0.5"}
    answer = {"boxstyle": "round,pad=0.5", "fc": "#d8e8f5", "ec": "C0"}
    arrow = {"arrowstyle": "->", "color": "0.4"}
    for k, (ask, take) in enumerate(CHOICES):
        axis.annotate(
            "",
            (k + 0.5, 0.75),
            (k + 0.5, 1.3),
            arrowprops=arrow,
        )
        axis.text(k + 0.53, 1.0, "yes", color="0.4")
        if k < 3:
            axis.annotate("", (k + 1.06, 1.75), (k + 0.94, 1.75), arrowprops=arrow)
            axis.text(k + 1.0, 1.85, "no", ha="center", color="0.4")
        axis.text(k + 0.5, 1.55, ask, ha="center", va="center", fontsize=8.5, bbox=question)
        axis.text(k + 0.5, 0.45, take, ha="center", va="center", weight="bold", bbox=answer)


def main() -> None:
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(13, 7.5), height_ratios=(1, 2), layout="constrained"
    )
    top.set_title("Which estimator to take: the first yes decides", weight="bold")
    draw_choices(top)
    bottom.set_title(
        "What each pays: a bandit told in two episodes of two pulls, one group of three",
        weight="bold",
        pad=58,
    )
    draw_payments(bottom)
    figure.savefig(FILE, dpi=90)


if __name__ == "__main__":
    main()
