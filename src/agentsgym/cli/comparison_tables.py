"""Tables of comparisons and of what they can show."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

from agentsgym.cli.console import shown
from agentsgym.cli.tables import interval, number, share

if TYPE_CHECKING:
    from agentsgym.evaluation import Comparison, Difference, Plan

Form = Callable[[float | None], str]

_DIFFERENCES = (0.02, 0.05, 0.1, 0.2)
POWER = 0.8


def comparison_table(first: str, second: str, env: str, result: "Comparison") -> Table:
    """Both players' figures and their differences, one figure per column."""
    table = Table(title=shown(f"{first} against {second} on {env}"), title_justify="left")
    columns = _columns(result, "")
    table.add_column("")
    for name, _, _ in columns:
        table.add_column(name, justify="right")
    table.add_row(shown(first), *(form(found.first) for _, found, form in columns))
    table.add_row(shown(second), *(form(found.second) for _, found, form in columns))
    table.add_row("difference", *(form(found.difference) for _, found, form in columns))
    bounds = [interval(_known(found.interval), form) for _, found, form in columns]
    table.add_row("95 % interval", *bounds)
    table.add_row("finding", *(_finding(found, first, second) for _, found, _ in columns))
    left = f", {result.left_out} left out because a side failed" if result.left_out else ""
    table.caption = f"{result.pairs} pairs of rollouts in {result.clusters} clusters of tasks{left}"
    table.caption_justify = "left"
    return table


def _finding(found: "Difference", first: str, second: str) -> str:
    if not found.shown:
        return found.verdict
    return shown(f"{first if found.difference > 0 else second} is higher")


def _columns(result: "Comparison", prefix: str) -> list[tuple[str, "Difference", Form]]:
    columns: list[tuple[str, Difference, Form]] = []
    if result.win_rate is not None:
        columns.append((f"{prefix}win rate", result.win_rate, share))
    if result.reward != result.win_rate:
        columns.append((f"{prefix}reward", result.reward, number))
    for path, part in result.environments.items():
        columns += _columns(part, shown(f"{path}: "))
    return columns


def _known(bounds: tuple[float, float]) -> tuple[float, float] | None:
    return bounds if bounds[0] == bounds[0] else None


def plan_lines(plan: "Plan", width: float | None) -> list[str]:
    """What a comparison on these rollouts can show. `width` is that of the rewards' range, if it is
    finite."""
    alike = plan.if_alike()
    lines = [
        f"{plan.pairs} rollouts in {plan.clusters} clusters of tasks, the same for both sides.",
        f"Shown with probability {POWER:.0%}: a difference of win rates of "
        f"{_points(plan.smallest(POWER))}"
        + (f", a difference of rewards of {plan.smallest(POWER) * width:.3f}" if width else "")
        + ".",
    ]
    if alike != plan:
        lines.append(
            "If all rollouts of a cluster differ alike between the sides: "
            f"{_points(alike.smallest(POWER))}."
        )
    chances = (f"{_points(d)} with {plan.power(d):.0%}" for d in _DIFFERENCES)
    lines.append(f"Chance to be shown: {', '.join(chances)}.")
    lines.append("This is for sides that each win half and play independently: the worst case.")
    return lines


def plain_plan(plan: "Plan", width: float | None) -> Mapping[str, Any]:
    """The same as data."""
    smallest = plan.smallest(POWER)
    return {
        "pairs": plan.pairs,
        "clusters": plan.clusters,
        "power": POWER,
        "smallest_win_rate_difference": smallest,
        "smallest_reward_difference": None if width is None else smallest * width,
        "smallest_if_clusters_are_alike": plan.if_alike().smallest(POWER),
        "chance_to_show": {str(d): plan.power(d) for d in _DIFFERENCES},
    }


def _points(value: float) -> str:
    return f"{100 * value:.1f} points" if value < 10 else "no size"
