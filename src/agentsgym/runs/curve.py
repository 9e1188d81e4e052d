"""The learning curve as a picture, and beside it the reward of each episode of a trial."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from agentsgym.evaluation import Evaluation
from agentsgym.runs.files.atomic import replacing
from agentsgym.runs.files.records import Summary, read_metrics

_BLUE, _ORANGE, _GREEN, _GRAY = "#1f5fa8", "#d1660a", "#2b8a3e", "#6b7280"
_WINDOWS = 20  # smoothing windows in a run
_REWARD = re.compile(r"episode_(\d+)/reward")
_PHASES = {
    "before": ("before", _GRAY),
    "warm_started": ("warm-started", _BLUE),
    "after": ("after", _ORANGE),
}
INFORMING = "informing/free_shots"

Lines = Sequence[Mapping[str, Any]]
Points = tuple[list[int], list[float]]


def draw_curve(metrics_path: Path, summary: Summary, picture: Path) -> None:
    """Draw a run's metrics and its evaluations into `picture` (PNG).

    The upper plot shows win rate (or reward, if the environment reports no wins) in training, raw
    and smoothed, and the evaluations before and after with their 95 % intervals. Reference players
    are lines where the plot is of rewards, or a win is a reward of 1. The lower plot shows the
    share of groups without signal and, where the environment marks them, that of
    informing actions in free shots. With trials of several episodes, a plot beside them shows the
    reward of each episode.
    """
    lines = list(read_metrics(metrics_path))
    evaluations = evaluated_episodes(summary)
    figure = Figure(figsize=(10.5 if evaluations else 8.0, 5.2), dpi=150, layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=(3, 1)) if evaluations else [figure]
    upper, lower = parts[0].subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [3.2, 1.0], "hspace": 0.04}
    )
    _draw_score(upper, lines, summary)
    _draw_signal(lower, lines)
    if evaluations:
        draw_episodes(parts[1].subplots(), evaluations)
    with replacing(picture) as part:
        figure.savefig(part, format="png")


def _draw_score(axes: Any, lines: Lines, summary: Summary) -> None:
    figures = summary.before or summary.after
    wins = [line for line in lines if line.get("win_rate") is not None]
    has_wins = bool(wins) if figures is None else figures.win_rate is not None
    name = "win_rate" if has_wins else "reward"
    _draw_smoothed(axes, points(lines, name, "train"), _BLUE, "training tasks")
    steps, values = points(lines, f"eval_{name}", "eval")
    axes.plot(steps, values, "o-", color=_ORANGE, markersize=3, linewidth=0.8)
    for step, figures in ((0, summary.before), (summary.steps, summary.after)):
        if figures is not None:
            _draw_evaluation(axes, step, figures, name, labeled=figures is summary.before)
    if name == "reward" or _rewards_are_wins(summary):  # a reference is a reward
        figures = summary.after or summary.before
        if figures is not None and figures.reference is not None:
            _draw_level(axes, "reference player", figures.reference, "--")
        for player, value in summary.references.items():
            _draw_level(axes, player, value, ":")
    _finish_score(axes, summary, name)


def _draw_smoothed(axes: Any, points: Points, color: str, label: str) -> None:
    steps, values = points
    axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.9)
    axes.plot(steps, smooth(values), color=color, linewidth=1.7, label=label)


def _draw_evaluation(
    axes: Any, step: int, figures: Evaluation, name: str, *, labeled: bool
) -> None:
    value = figures.win_rate if name == "win_rate" else figures.reward
    low, high = (figures.ci95 if name == "win_rate" else figures.reward_ci95) or (None, None)
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
        label="held-out tasks, 95 % interval" if labeled else None,
    )
    axes.annotate(
        f"{value:.1%}" if name == "win_rate" else f"{value:.2f}",
        (step, high),
        xytext=(0, 6),
        textcoords="offset points",
        ha="left" if labeled else "right",
        color=_ORANGE,
        fontweight="bold",
        annotation_clip=False,
    )


def _rewards_are_wins(summary: Summary) -> bool:
    """Whether a win has been a reward of 1 and everything else none in every evaluation."""
    evaluations = (summary.before, summary.warm_started, summary.after)
    return all(abs((f.reward or 0.0) - (f.win_rate or 0.0)) < 1e-6 for f in evaluations if f)


def _draw_level(axes: Any, player: str, value: float, style: str) -> None:
    axes.axhline(value, color=_GREEN, linestyle=style, linewidth=1.2)
    axes.annotate(
        player,
        (0.5, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, -11),
        textcoords="offset points",
        ha="center",
        color=_GREEN,
        fontsize=9,
    )


def _finish_score(axes: Any, summary: Summary, name: str) -> None:
    axes.set_title(f"{summary.name}: {summary.env}, seed {summary.seed}", loc="left", pad=26.0)
    axes.set_ylabel(name.replace("_", " "))
    if name == "win_rate":
        axes.set_ylim(0.0, max(0.1, min(1.05, axes.get_ylim()[1] * 1.05)))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    margin = 0.03 * max(summary.steps, 1)
    axes.set_xlim(-margin, max(summary.steps, 1) + margin)
    if axes.get_legend_handles_labels()[0]:
        # Below the title, where no curve can be.
        axes.legend(
            loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=9
        )
    _style(axes)


def _draw_signal(axes: Any, lines: Lines) -> None:
    without = points(lines, "groups_without_signal", "train")
    _draw_smoothed(axes, without, _GRAY, "groups without signal")
    informing = points(lines, INFORMING, "train")
    if informing[0]:
        _draw_smoothed(axes, informing, _ORANGE, "informing actions in free shots")
        axes.legend(frameon=False, fontsize=8, loc="center right")
    axes.set_ylim(0.0, 1.0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylabel("share" if informing[0] else "groups\nwithout signal", fontsize=9)
    axes.set_xlabel("optimizer step")
    _style(axes)


def _style(axes: Any) -> None:
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def points(lines: Lines, name: str, phase: str) -> Points:
    """Steps and values of one metric in one phase, without steps where it has no value."""
    pairs = [
        (line["step"], line[name])
        for line in lines
        if line["phase"] == phase and line.get(name) is not None
    ]
    return [step for step, _ in pairs], [value for _, value in pairs]


def smooth(values: Sequence[float]) -> list[float]:
    """Centered moving average over a twentieth of the run; narrower at both ends."""
    half = max(1, len(values) // (2 * _WINDOWS))
    result = []
    for k in range(len(values)):
        reach = min(half, k, len(values) - 1 - k)
        part = values[k - reach : k + reach + 1]
        result.append(sum(part) / len(part))
    return result


def episode_rewards(figures: Evaluation) -> list[float]:
    """The mean reward of each episode of a trial; empty if there is only one."""
    matches = ((_REWARD.fullmatch(name), value) for name, value in figures.trial.items())
    numbered = {int(match[1]): value for match, value in matches if match}
    return [numbered[number] for number in sorted(numbered)]


def evaluated_episodes(summary: Summary) -> Mapping[str, list[float]]:
    """The rewards of the episodes in each evaluation that has them, by its name in the summary."""
    evaluations = {name: getattr(summary, name) for name in _PHASES}
    by_name = {name: episode_rewards(f) for name, f in evaluations.items() if f is not None}
    return {name: rewards for name, rewards in by_name.items() if rewards}


def draw_episodes(axes: Any, evaluations: Mapping[str, list[float]]) -> None:
    """Reward over the number of the episode in its trial, a line per evaluation."""
    for name, rewards in evaluations.items():
        label, color = _PHASES[name]
        axes.plot(range(1, len(rewards) + 1), rewards, "o-", color=color, label=label)
    longest = max(map(len, evaluations.values()))
    axes.set_xticks(range(1, longest + 1))
    axes.set_xlim(0.7, longest + 0.3)
    axes.set_xlabel("episode of the trial")
    axes.set_ylabel("reward, held-out tasks")
    axes.legend(frameon=False, fontsize=9)
    _style(axes)
