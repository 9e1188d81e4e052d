"""Loss weights are data: the loss is Σ weight·ℓ over agent tokens.

Every weight is fixed here, before any split, so that rows, chunks, accumulation and processes
cannot change the loss. A window is all micro-batches of one optimizer step.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentsgym.training.loss.batch import TrainRollout


class WindowCounts(NamedTuple):
    """Denominators of one window, summed over all ranks. `rollouts` and `agent_tokens` count the
    rollouts in the loss; `live_tokens` are the agent tokens of all rollouts that did not fail."""

    rollouts: int
    agent_tokens: int
    live_tokens: int


Divisor = Callable[[int, WindowCounts, int], float]
"""(a rollout's agent tokens, the counts of the window, `norm_tokens`) → the divisor of the losses
of the rollout's tokens."""


def per_rollout_token(tokens: int, window: WindowCounts, norm_tokens: int) -> float:
    """Rollouts in the loss × the rollout's own agent tokens: every rollout weighs the same, however
    long. Source: Shao et al. 2024 (GRPO), arXiv 2402.03300."""
    return max(window.rollouts, 1) * max(tokens, 1)


def per_token(tokens: int, window: WindowCounts, norm_tokens: int) -> float:
    """The window's agent tokens: every token of a window weighs the same. Source: Yu et al. 2025
    (DAPO), arXiv 2503.14476."""
    return max(window.agent_tokens, 1)


def per_constant(tokens: int, window: WindowCounts, norm_tokens: int) -> float:
    """Rollouts in the loss × `norm_tokens`: every token weighs the same in every window. Source:
    Liu et al. 2025 (Dr. GRPO), arXiv 2503.20783."""
    return max(window.rollouts, 1) * norm_tokens


def per_rollout(tokens: int, window: WindowCounts, norm_tokens: int) -> float:
    """Rollouts in the loss: a rollout's tokens are summed, so long rollouts count in full. Source:
    Length-Unbiased Sequence Policy Optimization, 2026, arXiv 2602.05261."""
    return max(window.rollouts, 1)


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
    divisor: Divisor,
    norm_tokens: int | None = None,
) -> None:
    """Set the weight of every agent token by the divisor. The weight of the entropy bonus is
    1/(agent tokens in the window) for all. Rollouts that are not in the loss have weight 0.
    Distillation takes in all that did not fail, with a weight of 1/(their agent tokens)."""
    for rollout in rollouts:
        here = float(rollout.in_loss)
        weight = here / divisor(rollout.agent_tokens, counts, norm_tokens or 0)
        entropy = here / max(counts.agent_tokens, 1)
        teacher = float(not rollout.played.failed) / max(counts.live_tokens, 1)
        for row in rollout.rows:
            row.weight = weight
            row.entropy_weight = entropy
            row.teacher_weight = teacher
