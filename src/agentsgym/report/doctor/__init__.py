"""What goes wrong in a run, from its metrics, rollouts and token records. `faults.yaml` has the
faults: the limits of metrics that show them, and what to try."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from agentsgym.evaluation.trends import Curve
from agentsgym.report.doctor.evidence import LOOK_AT, Evidence, Fault, Signs, read_evidence, share
from agentsgym.report.doctor.faults import actions, curves, rewards
from agentsgym.report.stored import Source
from agentsgym.runs.sources import load_yaml
from agentsgym.tokens.template import REWRITES
from agentsgym.types.settings import Section, read

MOST_EXAMPLES = 4
"""Rollouts that a finding names."""


class Sign(Section):
    """A metric (a pattern) with its limits, and what it says."""

    metric: str
    above: float = float("-inf")
    below: float = float("inf")
    whole: bool = False
    says: str = ""

    def curves(self, evidence: Evidence) -> Iterator[tuple[Curve, str]]:
        """The curves beyond the limits, each with its sentence."""
        for name in evidence.metrics["values"]:
            match = re.fullmatch(self.metric, name)
            curve = evidence.curve(name) if match else None
            if match is None or curve is None:
                continue
            part = curve.whole if self.whole else curve.recent
            if self.above <= part.mean < self.below:
                early = f" ({share(curve.early.mean)} in {curve.early})" if curve.is_long else ""
                group = match[1] if match.re.groups else ""
                yield (
                    curve,
                    self.says.format(
                        group,
                        name=name,
                        words=REWRITES.get(group, group),
                        mean=part.mean,
                        share=share(part.mean),
                        steps=part,
                        now=f"{share(curve.recent.mean)} in {curve.recent}",
                        then=early,
                    ),
                )


class FaultKind(Section):
    """A fault as `faults.yaml` describes it."""

    when: str
    title: str
    only: Literal["", "unsolved", "stuck"] = ""
    signs: list[Sign] = Field(default_factory=list)
    also: list[Sign] = Field(default_factory=list)
    look_at: str = ""
    next: str


def _read_kinds() -> dict[str, FaultKind]:
    text = (files(__package__) / "faults.yaml").read_text("utf-8")
    return read(dict[str, FaultKind], load_yaml(text, "faults.yaml"))


FAULTS = _read_kinds()
"""The faults by name, in the order in which they are listed."""


def diagnose(evidence: Evidence) -> list[Fault]:
    """Every fault that is found, in the order of the table."""
    return [fault for name, kind in FAULTS.items() if (fault := _found(name, kind, evidence))]


def examine(run: Path) -> list[dict[str, Any]]:
    """What goes wrong in a run's directory, which is this process's own, as plain data."""
    return [asdict(fault) for fault in diagnose(read_evidence(Source(run, trust=True)))]


def _found(name: str, kind: FaultKind, evidence: Evidence) -> Fault | None:
    if not evidence.applies(kind.only):
        return None
    code: Any = next((vars(m)[name] for m in (actions, curves, rewards) if name in vars(m)), None)
    signs = _beyond(kind, evidence) if kind.signs else code and code(evidence)
    if signs is None:
        return None
    also = [line for sign in kind.also for _, line in sign.curves(evidence)]
    more = code(evidence) if code and kind.signs else ()
    return Fault(
        name,
        kind.title,
        (*signs.lines, *also, *more),
        kind.next.replace("{env}", evidence.env),
        tuple(_examples(signs, evidence.recent or evidence.early)),
        signs.steps,
    )


def _beyond(kind: FaultKind, evidence: Evidence) -> Signs | None:
    """The metrics beyond their limits."""
    beyond = [(sign, *one) for sign in kind.signs for one in sign.curves(evidence)]
    if not beyond:
        return None
    sign, curve, _ = beyond[0]
    steps = (curve.whole if sign.whole else curve.recent).steps
    return Signs(tuple(line for *_, line in beyond), steps, LOOK_AT.get(kind.look_at))


def _examples(signs: Signs, sets: Iterable[Any]) -> Iterator[str]:
    """The names of a few rollouts, from the first sets that have some."""
    look_at = signs.look_at
    if look_at is not None:
        rollouts = ((one.of.id, rollout) for one in sets for rollout in look_at(one))
        names = (f"{place}/{rollout.group}/{rollout.index}" for place, rollout in rollouts)
        yield from islice(names, MOST_EXAMPLES)


__all__ = ["FAULTS", "Evidence", "Fault", "diagnose", "examine", "read_evidence"]
