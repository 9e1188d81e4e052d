"""What a micro-batch holds: rollouts with the advantages of their rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from agentsgym.credit.table import Floats
from agentsgym.types import Rollout, Row


@dataclass(slots=True)
class TrainRow:
    """A row of T tokens with its advantages (float64, shape (T,)).

    `weight` is the loss weight of each of its agent tokens, `entropy_weight` that of the entropy
    bonus, `aux_weight` that of the whole row in a mixture of experts' auxiliary loss. `old_logps`
    and `ref_logps` (float, shape (T,)) are filled in where the loss needs them, and so is
    `rollout_log_ratio`: sum and number of logp − old logp over the agent tokens of the whole
    rollout.
    """

    row: Row
    advantages: Floats
    weight: float = 0.0
    entropy_weight: float = 0.0
    aux_weight: float = 0.0
    old_logps: torch.Tensor | None = None
    ref_logps: torch.Tensor | None = None
    rollout_log_ratio: tuple[float, int] = (0.0, 0)

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.row.token_ids)

    @property
    def agent_tokens(self) -> int:
        """Number of agent tokens."""
        return sum(self.row.agent_token_mask)


@dataclass(slots=True)
class TrainRollout:
    """A rollout in the trainer: the unit that TRL shuffles and splits. `live` says whether it
    counts in the loss's denominators."""

    rollout: Rollout
    rows: list[TrainRow]
    live: bool

    @property
    def agent_tokens(self) -> int:
        """Number of agent tokens in all rows."""
        return sum(row.agent_tokens for row in self.rows)


def make_rollouts(
    rollouts: Sequence[Rollout],
    advantages: Sequence[Floats],
    live: Sequence[bool],
    train_on: str = "rollout",
) -> list[TrainRollout]:
    """Pair rollouts with the advantages of their rows (in the order of `RolloutBatch.rows`).

    `train_on="steps"` makes a row of each step: its whole context, and loss on its tokens alone.
    """
    remaining = iter(advantages)
    result = []
    for rollout, alive in zip(rollouts, live, strict=True):
        rows = [TrainRow(row, next(remaining)) for row in rollout.rows]
        if train_on == "steps":
            rows = [part for row in rows for part in _by_step(row)]
        result.append(TrainRollout(rollout, rows, alive))
    return result


def _by_step(row: TrainRow) -> Iterator[TrainRow]:
    """One row per step: the tokens up to the step's end, loss on the step's own."""
    for span in row.row.spans:
        stop = span.stop
        own = np.zeros(stop, dtype=np.int64)
        own[span.start : stop] = row.row.agent_token_mask[span.start : stop]
        part = replace(
            row.row,
            token_ids=row.row.token_ids[:stop],
            agent_token_mask=tuple(own.tolist()),
            logprobs=row.row.logprobs[:stop],
            per_token_rewards=row.row.per_token_rewards[:stop],
            spans=(span,),
        )
        yield TrainRow(part, row.advantages[:stop] * own)


def weightless(like: TrainRow | None, pad_token_id: int) -> TrainRow:
    """A row that costs one short forward pass and carries no loss."""
    ids = like.row.token_ids[:2] if like is not None and like.length > 1 else (pad_token_id,) * 2
    return TrainRow(Row("", 0, 0, ids, (0, 0), (0.0, 0.0), (0.0, 0.0), ()), np.zeros(2))
