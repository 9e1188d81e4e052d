"""What goes wrong in a run, from its metrics, rollouts and token records: a pure function from the
evidence to each fault, by topic."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from agentsgym.report.doctor.actions import (
    calls_break,
    calls_never_run,
    malformed_actions,
    rows_break,
    truncated_actions,
)
from agentsgym.report.doctor.environments import idle_environment, rollouts_fail
from agentsgym.report.doctor.evidence import Evidence, Fault, read_evidence
from agentsgym.report.doctor.policy import (
    entropy_gone,
    one_action,
    ratios_clipped,
    sampler_mismatch,
)
from agentsgym.report.doctor.rewards import (
    no_signal,
    reference_loses,
    reward_against_wins,
)

RULES: Mapping[str, Callable[[Evidence], Fault | None]] = {
    rule.__name__: rule
    for rule in (
        rollouts_fail,
        reference_loses,
        calls_never_run,
        malformed_actions,
        truncated_actions,
        reward_against_wins,
        one_action,
        entropy_gone,
        no_signal,
        idle_environment,
        sampler_mismatch,
        ratios_clipped,
        rows_break,
        calls_break,
    )
}
"""The faults by name, in the order in which they are listed. A rule's docstring says when its fault
is named; docs/doctor.md has it."""


def diagnose(evidence: Evidence) -> list[Fault]:
    """Every fault that is found, in the order of the table."""
    faults = {name: rule(evidence) for name, rule in RULES.items()}
    return [replace(one, fault=name) for name, one in faults.items() if one is not None]


__all__ = ["RULES", "Evidence", "Fault", "diagnose", "read_evidence"]
