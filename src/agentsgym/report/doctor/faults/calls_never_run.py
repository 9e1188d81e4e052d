"""Calls without results."""

from collections.abc import Iterable, Mapping
from typing import Any

from agentsgym.report.doctor.evidence import Evidence, Signs, share
from agentsgym.report.doctor.looking import actions_of
from agentsgym.report.stored import Contents
from agentsgym.types import Rollout

_RAN = 0.01
"""Share of the calls."""


def find(evidence: Evidence) -> Signs | None:
    """Calls were begun, and hardly any has a result."""
    names = ("attempted", "parsed", "executed")
    begun, parsed, executed = (evidence.curve(f"tool_calls/{name}") for name in names)
    ran = parsed if executed is None else executed
    if begun is None or ran is None or begun.recent.mean <= 0:
        return None
    if ran.recent.mean >= _RAN * begun.recent.mean:
        return None
    read = 0.0 if parsed is None else parsed.recent.mean / begun.recent.mean
    lines = (
        f"{begun.recent.mean:.2g} calls per action were begun in {begun.recent}",
        f"{share(read)} of them could be read",
    )
    return Signs(lines, begun.recent.steps, _calling)


def _calling(one: Contents) -> Iterable[Rollout]:
    return (r for r in one.live if any(_calls(step.info) for step in actions_of([r])))


def _calls(info: Mapping[str, Any]) -> bool:
    metrics = info.get("metrics")
    return isinstance(metrics, Mapping) and bool(metrics.get("tool_calls/attempted"))
