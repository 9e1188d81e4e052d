"""The learning curve as a picture, and beside it the reward of each episode of a trial."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from agentsgym.evaluation import Evaluation
from agentsgym.runs.files.directory import replacing
from agentsgym.runs.files.records import Summary, read_metrics

_BLUE, _ORANGE, _GREEN = "#1f5fa8", "#d1660a", "#2b8a3e"
_EVALUATIONS = {"before": "#6b7280", "warm_started": _BLUE, "after": _ORANGE}
_WINDOWS = 20  # smoothing windows in a run
_REWARD = re.compile(r"episode_(\d+)/reward")

Lines = Sequence[Mapping[str, Any]]


def draw_curve(metrics_path: Path, summary: Summary, picture: Path) -> None:
    """Draw a run's metrics and its evaluations into `picture` (PNG).

    The curve is of the win rate (or reward, if the environment reports no wins) in training, raw
    and smoothed, with the evaluations before and after and their 95 % intervals. Reference players
    are lines where the curve is of rewards, or a win is a reward of 1. With trials of several
    episodes, a plot beside it shows the reward of each episode.
    """
    known = {name: getattr(summary, name) for name in _EVALUATIONS}
    evaluations: dict[str, Evaluation] = {name: one for name, one in known.items() if one}
    episodes = {name: episode_rewards(one) for name, one in evaluations.items()}
    episodes = {name: rewards for name, rewards in episodes.items() if rewards}
    figure = Figure(figsize=(10.5 if episodes else 8.0, 4.2), dpi=150, layout="constrained")
    ratios = (3, 1) if episodes else (1,)
    plots = figure.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
    for plot in plots:
        plot.grid(True, alpha=0.25, linewidth=0.6)
        plot.spines[["top", "right"]].set_visible(False)
    _draw_score(plots[0], list(read_metrics(metrics_path)), summary, evaluations)
    if episodes:
        _draw_episodes(plots[1], episodes)
    with replacing(picture) as part:
        figure.savefig(part, format="png")


def _draw_score(
    axes: Any, lines: Lines, summary: Summary, evaluations: Mapping[str, Evaluation]
) -> None:
    figures = list(evaluations.values())
    rates = [one.win_rate for one in figures] or [line.get("win_rate") for line in lines]
    wins = any(rate is not None for rate in rates)
    name = "win_rate" if wins else "reward"
    steps, values = points(lines, name, "train")
    axes.plot(steps, values, color=_BLUE, alpha=0.25, linewidth=0.9)
    axes.plot(steps, smooth(values), color=_BLUE, linewidth=1.7, label="training tasks")
    steps, values = points(lines, f"eval_{name}", "eval")
    axes.plot(steps, values, "o-", color=_ORANGE, markersize=3, linewidth=0.8)
    for phase, step in (("before", 0), ("after", summary.steps)):
        if phase in evaluations:
            _draw_evaluation(axes, step, evaluations[phase], wins=wins, first=phase == "before")
    if not wins or all(one.reward == one.win_rate for one in figures):  # a reference is a reward
        references = dict(summary.references)
        if figures and figures[-1].reference is not None:
            references["reference player"] = figures[-1].reference
        for player, value in references.items():
            axes.axhline(value, color=_GREEN, linestyle="--", linewidth=1.2)
            place = {"xycoords": ("axes fraction", "data"), "va": "bottom", "ha": "center"}
            axes.annotate(player, (0.5, value), color=_GREEN, fontsize=9, **place)
    if wins:
        axes.set_ylim(0.0, max(0.1, min(1.05, axes.get_ylim()[1] * 1.05)))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title(f"{summary.name}: {summary.env}, seed {summary.seed}", loc="left", pad=26.0)
    axes.set_ylabel(name.replace("_", " "))
    axes.set_xlabel("optimizer step")
    # Below the title, where no curve can be.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=9)


def _draw_evaluation(axes: Any, step: int, figures: Evaluation, *, wins: bool, first: bool) -> None:
    value = figures.win_rate if wins else figures.reward
    low, high = (figures.ci95 if wins else figures.reward_ci95) or (None, None)
    if value is None or low is None or high is None:
        return
    axes.errorbar(
        [step],
        [value],
        # By rounding, an end of the interval may be beyond the value.
        yerr=[[max(value - low, 0.0)], [max(high - value, 0.0)]],
        fmt="o",
        color=_ORANGE,
        capsize=4,
        zorder=5,
        clip_on=False,
        label="held-out tasks, 95 % interval" if first else None,
    )
    text = f"{value:.1%}" if wins else f"{value:.2f}"
    place = {"va": "bottom", "ha": "left" if first else "right"}
    axes.annotate(text, (step, high), color=_ORANGE, fontweight="bold", **place)


def points(lines: Lines, name: str, phase: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric in one phase, without steps where it has no value."""
    pairs = [
        (line["step"], line[name])
        for line in lines
        if line["phase"] == phase and line.get(name) is not None
    ]
    return [step for step, _ in pairs], [value for _, value in pairs]


def smooth(values: Sequence[float]) -> list[float]:
    """Centered moving average over a twentieth of the run; narrower at both ends."""
    half, ends = max(1, len(values) // (2 * _WINDOWS)), np.arange(len(values))
    reach = np.minimum(half, np.minimum(ends, ends[::-1]))
    sums = np.cumsum([0.0, *values])
    means: list[float] = ((sums[ends + reach + 1] - sums[ends - reach]) / (2 * reach + 1)).tolist()
    return means


def episode_rewards(figures: Evaluation) -> list[float]:
    """The mean reward of each episode of a trial; empty if there is only one."""
    matches = ((_REWARD.fullmatch(name), value) for name, value in figures.trial.items())
    numbered = {int(match[1]): value for match, value in matches if match}
    return [numbered[number] for number in sorted(numbered)]


def _draw_episodes(axes: Any, evaluations: Mapping[str, Sequence[float]]) -> None:
    """Reward over the number of the episode in its trial, a line per evaluation."""
    for name, rewards in evaluations.items():
        numbers = range(1, len(rewards) + 1)
        label = name.replace("_", "-")
        axes.plot(numbers, rewards, "o-", color=_EVALUATIONS[name], label=label)
    axes.set_xticks(range(1, max(map(len, evaluations.values())) + 1))
    axes.set_xlabel("episode of the trial")
    axes.set_ylabel("reward, held-out tasks")
    axes.legend(frameon=False, fontsize=9)
