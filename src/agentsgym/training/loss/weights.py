"""Loss weights are data: the loss is Σ weight·ℓ over tokens, in streams with their own weights.

Every weight is fixed here, before any split, so that rows, chunks, accumulation and processes
cannot change the loss. A window is all micro-batches of one optimizer step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentsgym.training.loss.batch import TrainRollout


class Totals(NamedTuple):
    """The rollouts of a stream in one window, and their tokens with loss, over all ranks."""

    rollouts: int
    tokens: int


Divisor = Callable[[int, Totals, int], float]
"""(a rollout's tokens, the counts of its stream, `norm_tokens`) → the divisor of the losses of the
rollout's tokens."""


def per_rollout_token(tokens: int, window: Totals, norm_tokens: int) -> float:
    """Rollouts in the loss × the rollout's own tokens: every rollout weighs the same, however
    long. Source: Shao et al. 2024 (GRPO), arXiv 2402.03300."""
    return max(window.rollouts, 1) * max(tokens, 1)


def per_token(tokens: int, window: Totals, norm_tokens: int) -> float:
    """The window's tokens: every token of a window weighs the same. Source: Yu et al. 2025
    (DAPO), arXiv 2503.14476."""
    return max(window.tokens, 1)


def per_constant(tokens: int, window: Totals, norm_tokens: int) -> float:
    """Rollouts in the loss × `norm_tokens`: every token weighs the same in every window. Source:
    Liu et al. 2025 (Dr. GRPO), arXiv 2503.20783."""
    return max(window.rollouts, 1) * norm_tokens


def per_rollout(tokens: int, window: Totals, norm_tokens: int) -> float:
    """Rollouts in the loss: a rollout's tokens are summed, so long rollouts count in full. Source:
    Length-Unbiased Sequence Policy Optimization, 2026, arXiv 2602.05261."""
    return max(window.rollouts, 1)


class Stream(NamedTuple):
    """A term of the loss: the rollouts whose tokens it `takes`, and the `divisor` of its losses."""

    takes: Callable[[TrainRollout], bool]
    divisor: Divisor


def streams_of(divisor: Divisor) -> dict[str, Stream]:
    """The terms of a loss whose policy term has this divisor. KL to the reference is weighed as the
    policy's loss is; distillation takes all rollouts that did not fail."""
    return {
        "policy": Stream(lambda rollout: rollout.in_loss, divisor),
        "reference": Stream(lambda rollout: rollout.in_loss, divisor),
        "entropy": Stream(lambda rollout: rollout.in_loss, per_token),
        "teacher": Stream(lambda rollout: not rollout.played.failed, per_token),
    }


def assign_weights(
    rollouts: Sequence[TrainRollout],
    streams: Mapping[str, Stream],
    gather: Callable[[list[Any]], list[Any]],
    norm_tokens: int = 0,
) -> None:
    """Set the weights of the tokens of this rank's part of a window; 0 for a rollout that a stream
    does not take. `gather` joins lists of all ranks, all of which must call it."""
    own = {
        name: [rollout.agent_tokens for rollout in rollouts if stream.takes(rollout)]
        for name, stream in streams.items()
    }
    every = gather([{name: Totals(len(tokens), sum(tokens)) for name, tokens in own.items()}])
    for name, stream in streams.items():
        counts = Totals(*(sum(column) for column in zip(*(of[name] for of in every), strict=True)))
        for rollout in rollouts:
            divisor = stream.divisor(rollout.agent_tokens, counts, norm_tokens)
            for row in rollout.rows:
                row.weights[name] = stream.takes(rollout) / divisor
