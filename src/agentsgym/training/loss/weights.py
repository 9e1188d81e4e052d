"""Loss weights are data: the loss is Σ weight·ℓ over agent tokens.

Every weight is fixed here, before anything is split, so that rows, chunks, accumulation and
processes cannot change the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agentsgym.training.loss.samples import TrainRollout

NORMALISERS = {
    "grpo": "rollout",
    "sapo": "rollout",
    "dapo": "tokens",
    "cispo": "tokens",
    "vespo": "tokens",
    "dr_grpo": "constant",
    "luspo": "rollouts",
}
"""What each loss type divides by. "rollout": live rollouts × the rollout's agent tokens;
"tokens": agent tokens in the optimiser's window; "constant": live rollouts × `norm_tokens`;
"rollouts": live rollouts."""


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Denominators of one optimiser window, summed over all ranks."""

    live_rollouts: int
    agent_tokens: int
    tokens: int


def count(rollouts: Sequence[TrainRollout]) -> WindowCounts:
    """Live rollouts, their agent tokens, and all tokens of the rows that hold any, on this rank."""
    live = [rollout for rollout in rollouts if rollout.live]
    return WindowCounts(
        len(live),
        sum(rollout.agent_tokens for rollout in live),
        sum(row.length for rollout in live for row in rollout.rows if row.agent_tokens),
    )


def total(counts: Sequence[WindowCounts]) -> WindowCounts:
    """The counts of several ranks together."""
    return WindowCounts(
        sum(part.live_rollouts for part in counts),
        sum(part.agent_tokens for part in counts),
        sum(part.tokens for part in counts),
    )


def assign_weights(
    rollouts: Sequence[TrainRollout],
    counts: WindowCounts,
    loss_type: str,
    norm_tokens: int | None = None,
) -> None:
    """Fix the weight of every agent token as `NORMALISERS` says; that of the entropy bonus is
    1/(agent tokens in the window) for all, that of a row in the auxiliary loss its share of the
    window's tokens. Rollouts that are not live weigh 0."""
    for rollout in rollouts:
        weight = 1.0 / _divisor(rollout, counts, loss_type, norm_tokens) if rollout.live else 0.0
        entropy = 1.0 / max(counts.agent_tokens, 1) if rollout.live else 0.0
        for row in rollout.rows:
            row.weight = weight
            row.entropy_weight = entropy
            row.aux_weight = row.length / max(counts.tokens, 1) if rollout.live else 0.0


def _divisor(
    rollout: TrainRollout, counts: WindowCounts, loss_type: str, norm_tokens: int | None
) -> float:
    live = max(counts.live_rollouts, 1)
    kind = NORMALISERS[loss_type]
    if kind == "rollout":
        return live * max(rollout.agent_tokens, 1)
    if kind == "tokens":
        return max(counts.agent_tokens, 1)
    if kind == "rollouts":
        return live
    if norm_tokens is None:
        raise ValueError(f"loss type {loss_type!r} needs norm_tokens")
    return live * norm_tokens
