"""The table of faults: one entry for each, in the order in which they are told."""

from collections.abc import Callable
from dataclasses import dataclass

from agentsgym.report.doctor.actions import (
    exhausted_budget,
    malformed_actions,
    rows_break,
    truncated_actions,
)
from agentsgym.report.doctor.environments import idle_environment, rollouts_fail
from agentsgym.report.doctor.evidence import Evidence
from agentsgym.report.doctor.fault import Fault
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
    reward_falls,
)
from agentsgym.types.names import table


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault: when it is named (`help`), and the pure function that looks for it."""

    name: str
    help: str
    find: Callable[[Evidence], Fault | None]


RULES = table(
    Rule("rollouts_fail", "5 % of the rollouts, or of an environment's, fail", rollouts_fail),
    Rule(
        "reference_loses",
        "best known play wins under 95 % of the held-out tasks, or earns no more than the model "
        "before training",
        reference_loses,
    ),
    Rule("malformed_actions", "10 % of the actions are malformed or unparsed", malformed_actions),
    Rule("truncated_actions", "10 % of the actions reach the token cap", truncated_actions),
    Rule(
        "exhausted_budget",
        "10 % of the episodes end because the rollout's tokens are used up",
        exhausted_budget,
    ),
    Rule(
        "reward_falls",
        "the reward falls by more than two standard errors, or is lower on the held-out tasks "
        "after training, with intervals that do not meet",
        reward_falls,
    ),
    Rule(
        "reward_against_wins",
        "the reward rises and the win rate falls by 3 points, both by more than two standard "
        "errors",
        reward_against_wins,
    ),
    Rule(
        "one_action", "90 % of the actions are the same text, and the game is not won", one_action
    ),
    Rule(
        "entropy_gone",
        "entropy under 0.02 nats or a tenth of the beginning's, and the game is not won",
        entropy_gone,
    ),
    Rule(
        "no_signal",
        "half of the groups have rollouts that all earn the same and are not all won",
        no_signal,
    ),
    Rule(
        "idle_environment",
        "one environment of a mix is no longer played, or all its rollouts earn the same",
        idle_environment,
    ),
    Rule(
        "sampler_mismatch",
        "log-probabilities of sampler and trainer differ by 0.05 nats per token, their mean ratio "
        "by 5 % from 1, or 5 % of the rows are capped",
        sampler_mismatch,
    ),
    Rule(
        "ratios_clipped",
        "10 % of the agent tokens are clipped, or the effective sample size is under 0.3, both "
        "over the whole run",
        ratios_clipped,
    ),
    Rule("rows_break", "the chat template breaks one rollout in ten into more rows", rows_break),
)
"""The faults by name."""


def diagnose(evidence: Evidence) -> list[Fault]:
    """Every fault that is found, in the order of the table."""
    return [found for rule in RULES.values() if (found := rule.find(evidence)) is not None]
