"""`agentsgym credit --replay`: what the actions of a run were worth, measured by playing on."""

import dataclasses
from collections.abc import Mapping, Sequence

from rich.table import Table

from agentsgym.cli.console import out, print_json, print_table, shown
from agentsgym.cli.tables import plain_data
from agentsgym.evaluation.dependence import Correlation
from agentsgym.evaluation.effects import Effect
from agentsgym.evaluation.intervals import mean_interval
from agentsgym.report.credit import StepCredit, correlations
from agentsgym.runs.branches import Measured

_ROWS, _LONGEST = 20, 60


def show_effects(
    measured: Measured, lines: Sequence[StepCredit], plays: int, *, as_json: bool
) -> None:
    """Print the effects beside the credit in `lines`."""
    found = correlations(measured.effects, lines)
    if as_json:
        print_json(plain_data(dataclasses.asdict(measured) | {"correlations": found}))
    else:
        _print(measured, found, plays, lines)


def _print(
    measured: Measured,
    found: Mapping[str, Correlation],
    plays: int,
    lines: Sequence[StepCredit],
) -> None:
    effects = sorted(measured.effects, key=lambda one: (not one.matters, -abs(one.effect)))
    print_table(_table_of_effects(effects[:_ROWS], lines))
    mattered = sum(one.matters for one in effects)
    out.print(
        f"{len(effects)} of {measured.decisions} decisions measured, with {plays} plays from the "
        f"state before and after each; the intervals of {mattered} have no zero."
    )
    for name, some in _kinds(effects).items():
        low, high = mean_interval([one.effect for one in some], [one.group for one in some])
        mean = sum(one.effect for one in some) / len(some)
        out.print(
            f"{name}: {len(some)}, mean effect {mean:+.3f} ({_between(low, high)}), "
            f"{sum(one.matters for one in some)} with an interval without zero."
        )
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("estimator", "correlation with the effect", "95 % interval"):
        table.add_column(heading)
    for name, one in sorted(found.items(), key=lambda item: -item[1].value):
        table.add_row(name, f"{one.value:+.2f}", _between(one.low, one.high))
    print_table(table)
    left = "" if len(effects) == measured.decisions else "; a larger --budget goes on from here"
    out.print(f"{measured.branches} branches took {measured.steps} steps of the environment{left}.")
    if measured.failed:
        reason = measured.failed[0].strip().splitlines()[-1]
        out.print(shown(f"{len(measured.failed)} branches failed; the first: {reason}"))


def _kinds(effects: Sequence[Effect]) -> dict[str, list[Effect]]:
    """The effects of actions that told something new, and of others, where the environment says
    which do."""
    known = [one for one in effects if one.pairs]
    kinds = {
        "informing actions": [one for one in known if one.informing is True],
        "other actions": [one for one in known if one.informing is False],
    }
    return {name: some for name, some in kinds.items() if some}


def _table_of_effects(effects: Sequence[Effect], lines: Sequence[StepCredit]) -> Table:
    """Each effect with the credit of its action by estimator, and below the action the most
    frequent other ones with their plays and mean reward."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    names = tuple(lines[0].credit) if lines else ()
    for name in ("rollout", "step", "action", "effect", "95 % interval", *names):
        heading = name.replace("_", "_\n")
        table.add_column(heading, no_wrap=name != "action", vertical="top")
    by_key = {(line.group, line.rollout, line.episode, line.step): line.credit for line in lines}
    for one in effects:
        credit = by_key[one.group, one.rollout, one.episode, one.step]
        others = [other for other in one.alternatives if other.action != one.action][:3]
        said = [_short(one.action)]
        said += [f"  else {_short(o.action)} ({o.plays}: {o.reward:.3g})" for o in others]
        table.add_row(
            f"{one.group}/{one.rollout}",
            f"{one.episode}.{one.step}",
            "\n".join(said),
            f"{one.effect:+.3f}",
            "unknown" if one.interval is None else _between(*one.interval),
            *(f"{credit[name]:+.3f}" for name in names),
        )
    return table


def _between(low: float, high: float) -> str:
    return f"{low:+.3f} to {high:+.3f}" if low <= high else "unknown"


def _short(action: str) -> str:
    return shown(" ".join(action.split())[:_LONGEST])
