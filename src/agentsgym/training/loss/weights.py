"""Loss weights are data: the loss is Σ weight·ℓ over agent tokens.

Every weight is fixed here, before any split, so that rows, chunks, accumulation and processes
cannot change the loss. A window is all micro-batches of one optimizer step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentsgym.training.loss.batch import TrainRollout


class WindowCounts(NamedTuple):
    """Denominators of one window, summed over all ranks. `rollouts` and `agent_tokens` count the
    rollouts in the loss; `live_tokens` are the agent tokens of all rollouts that did not fail."""

    rollouts: int
    agent_tokens: int
    live_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRule:
    """The divisor of a token's loss.

    `divisor` takes a rollout's agent tokens, the counts of the window and `norm_tokens`.
    `formula` and `effect` (on an unbiased gradient) are Markdown for the docs.
    """

    name: str
    formula: str
    effect: str
    divisor: Callable[[int, WindowCounts, int], float]
    needs_norm_tokens: bool = False


PER_ROLLOUT_TOKEN = WeightRule(
    name="rollout",
    formula="1 / (rollouts in the loss × the rollout's own agent tokens)",
    effect="turned by 0.32: long rollouts count less per token",
    divisor=lambda tokens, window, norm: max(window.rollouts, 1) * max(tokens, 1),
)
PER_TOKEN = WeightRule(
    name="tokens",
    formula="1 / agent tokens of the optimizer step",
    effect="turned by 0.10 with three rollouts, less with more",
    divisor=lambda tokens, window, norm: max(window.agent_tokens, 1),
)
PER_CONSTANT = WeightRule(
    name="constant",
    formula="1 / (rollouts in the loss × `loss_norm_tokens`)",
    effect="as it is",
    divisor=lambda tokens, window, norm: max(window.rollouts, 1) * norm,
    needs_norm_tokens=True,
)
PER_ROLLOUT = WeightRule(
    name="rollouts",
    formula="1 / rollouts in the loss",
    effect="as it is",
    divisor=lambda tokens, window, norm: max(window.rollouts, 1),
)


def count_rollouts(rollouts: Sequence[TrainRollout]) -> WindowCounts:
    """The counts of this rank's part of a window."""
    counted = [rollout for rollout in rollouts if rollout.in_loss]
    return WindowCounts(
        len(counted),
        sum(rollout.agent_tokens for rollout in counted),
        sum(rollout.agent_tokens for rollout in rollouts if not rollout.played.failed),
    )


def sum_counts(counts: Sequence[WindowCounts]) -> WindowCounts:
    """The counts of several ranks together."""
    return WindowCounts(*(sum(column) for column in zip(*counts, strict=True)))


def assign_weights(
    rollouts: Sequence[TrainRollout],
    counts: WindowCounts,
    rule: WeightRule,
    norm_tokens: int | None = None,
) -> None:
    """Set the weight of every agent token according to the rule. The weight of the entropy bonus is
    1/(agent tokens in the window) for all. Rollouts that are not in the loss have weight 0.
    Distillation takes in all that did not fail, with a weight of 1/(their agent tokens)."""
    for rollout in rollouts:
        here = float(rollout.in_loss)
        weight = here / rule.divisor(rollout.agent_tokens, counts, norm_tokens or 0)
        entropy = here / max(counts.agent_tokens, 1)
        teacher = float(not rollout.played.failed) / max(counts.live_tokens, 1)
        for row in rollout.rows:
            row.weight = weight
            row.entropy_weight = entropy
            row.teacher_weight = teacher
