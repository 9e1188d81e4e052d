"""The loss's inputs: rollouts with their advantages, in rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from agentsgym.types import Rollout, Row, StepSpan
from agentsgym.types.records import Floats


@dataclass(slots=True)
class TrainRow:
    """A row of T tokens with its advantages (float64, shape (T,)).

    `token_ids` int32, `agent_token_mask` int64, `logprobs` float32 (the sampler's), `spans` and
    `sampled` are those of the `Row`. `weight` is the loss weight of each agent token,
    `entropy_weight` that of the entropy bonus, `aux_weight` that of the whole row in a mixture of
    experts' auxiliary loss. `old_logps` and `ref_logps` (float, shape (T,)) are set if the loss
    needs them, and so is `rollout_log_ratio`: sum and number of logp − old logp over the agent
    tokens of the whole rollout.
    """

    token_ids: NDArray[np.int32]
    agent_token_mask: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    spans: tuple[StepSpan, ...]
    sampled: bool
    advantages: Floats
    weight: float = 0.0
    entropy_weight: float = 0.0
    aux_weight: float = 0.0
    old_logps: torch.Tensor | None = None
    ref_logps: torch.Tensor | None = None
    rollout_log_ratio: tuple[float, int] = (0.0, 0)

    @classmethod
    def of(cls, row: Row, advantages: Floats) -> "TrainRow":
        """A played row with its advantages."""
        return cls(
            row.token_ids, row.agent_token_mask, row.logprobs, row.spans, row.sampled, advantages
        )

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.token_ids)

    @property
    def agent_tokens(self) -> int:
        """Number of agent tokens."""
        return int(np.count_nonzero(self.agent_token_mask))


@dataclass(slots=True)
class TrainRollout:
    """A rollout in the trainer: the unit that TRL shuffles and splits. `played` is the rollout
    itself; `in_loss` says whether it counts in the loss's denominators."""

    played: Rollout
    rows: list[TrainRow]
    in_loss: bool

    @property
    def agent_tokens(self) -> int:
        """Number of agent tokens in all rows."""
        return sum(row.agent_tokens for row in self.rows)


def make_rollouts(
    rollouts: Sequence[Rollout],
    advantages: Sequence[Floats],
    in_loss: Sequence[bool],
    train_on: str = "rollout",
) -> list[TrainRollout]:
    """Pair rollouts with the advantages of their rows (in the order of `RolloutBatch.rows`).

    `train_on="steps"` makes one row per step: its whole context, with loss only on its own tokens.
    """
    remaining = iter(advantages)
    result = []
    for rollout, counts in zip(rollouts, in_loss, strict=True):
        rows = [TrainRow.of(row, next(remaining)) for row in rollout.rows]
        if train_on == "steps":
            rows = [part for row in rows for part in _by_step(row)]
        result.append(TrainRollout(rollout, rows, counts))
    return result


def _by_step(row: TrainRow) -> Iterator[TrainRow]:
    """One row per step: the tokens up to the step's end, with loss on the step's own tokens."""
    for span in row.spans:
        stop = span.stop
        own = np.zeros(stop, np.int64)
        own[span.start : stop] = row.agent_token_mask[span.start : stop]
        yield replace(
            row,
            token_ids=row.token_ids[:stop],
            agent_token_mask=own,
            logprobs=row.logprobs[:stop],
            spans=(span,),
            advantages=row.advantages[:stop] * own,
        )


def weightless(like: TrainRow | None, pad_token_id: int) -> TrainRow:
    """A row that costs one short forward pass and carries no loss."""
    pads = np.full(2, pad_token_id, np.int32)
    ids = like.token_ids[:2] if like is not None and like.length > 1 else pads
    zeros = np.zeros(2, np.float32)
    return TrainRow(ids, np.zeros(2, np.int64), zeros, (), True, np.zeros(2))
