"""The loss's inputs: rollouts with their advantages, in rows, and the agent tokens of a forward
pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from agentsgym.generation.models import without_adapter
from agentsgym.types import Rollout, Row, StepSpan
from agentsgym.types.rows import Floats, Ints


@dataclass(slots=True)
class TrainRow:
    """A row of T tokens with its advantages (float64, shape (T,)).

    `token_ids` int32, `agent_token_mask` int64, `logprobs` float32 (the sampler's), `spans` and
    `sampled` are those of the `Row`. `weight` is the loss weight of each agent token,
    `entropy_weight` that of the entropy bonus, `teacher_weight` in distillation. `old_logps`,
    `ref_logps` and `teacher_logps` (float, shape (T,)) are set if the loss needs them, and so is
    `rollout_log_ratio`, sum and number of logp − old logp over the agent tokens of the rollout.
    """

    token_ids: NDArray[np.int32]
    agent_token_mask: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    spans: tuple[StepSpan, ...]
    sampled: bool
    advantages: Floats
    weight: float = 0.0
    entropy_weight: float = 0.0
    teacher_weight: float = 0.0
    old_logps: torch.Tensor | None = None
    ref_logps: torch.Tensor | None = None
    teacher_logps: torch.Tensor | None = None
    rollout_log_ratio: tuple[float, int] = (0.0, 0)

    @classmethod
    def of(cls, row: "Row | TrainRow", advantages: Floats) -> "TrainRow":
        """A row with its advantages, and nothing else that training needs."""
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
    itself; `in_loss` says whether it counts in the loss's denominators, and `replayed` whether it
    was trained on before."""

    played: Rollout
    rows: list[TrainRow]
    in_loss: bool
    replayed: bool = False

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


def weightless(pad_token_id: int) -> TrainRow:
    """A row that costs one short forward pass and carries no loss."""
    nothing = np.zeros(2, np.int64)
    pads = np.full(2, pad_token_id, np.int32)
    return TrainRow(pads, nothing, np.zeros(2, np.float32), (), True, np.zeros(2))


# -- chunks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """The P agent tokens in the rows of one forward pass, row by row.

    `row` and `position` (int64, shape (P,), numpy) say where each stands. On the device, of shape
    (P,): `targets` int64 (the token ids), `advantages`, `weight`, `entropy_weight`,
    `teacher_weight`, `span` int64 (number of the step within the chunk), `sampler_logps` with
    `sampled` (1.0 if an engine gave them), `rollout_log_ratio` and `rollout_tokens`, and, if the
    loss uses them, `old_logps`, `ref_logps` and `teacher_logps`.
    """

    rows: tuple[TrainRow, ...]
    row: Ints
    position: Ints
    targets: torch.Tensor
    advantages: torch.Tensor
    weight: torch.Tensor
    entropy_weight: torch.Tensor
    teacher_weight: torch.Tensor
    span: torch.Tensor
    sampler_logps: torch.Tensor
    sampled: torch.Tensor
    rollout_log_ratio: torch.Tensor
    rollout_tokens: torch.Tensor
    old_logps: torch.Tensor | None
    ref_logps: torch.Tensor | None
    teacher_logps: torch.Tensor | None

    def by_row(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Values of shape (P,) as one tensor of shape (T,) for each row, 0 off agent tokens."""
        counts = np.bincount(self.row, minlength=len(self.rows)).tolist()
        position = torch.from_numpy(self.position).to(values.device)
        return [
            values.new_zeros(row.length).index_copy_(0, at, part)
            for row, at, part in zip(
                self.rows, torch.split(position, counts), torch.split(values, counts), strict=True
            )
        ]


def collate(
    rows: Sequence[TrainRow], device: torch.device, dtype: torch.dtype = torch.float32
) -> Chunk:
    """The agent tokens of rows as a Chunk; `dtype` is the type of its floating-point tensors. A
    row's first token has no probability and is left out."""
    positions = [np.flatnonzero(row.agent_token_mask[1:]) + 1 for row in rows]
    counts = [len(at) for at in positions]

    def ints(values: Sequence[NDArray[Any]]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(values).astype(np.int64)).to(device)

    def floats(values: Sequence[ArrayLike]) -> torch.Tensor:
        at_tokens = [np.asarray(v)[at] for v, at in zip(values, positions, strict=True)]
        return torch.from_numpy(np.concatenate(at_tokens)).to(device=device, dtype=dtype)

    def per_row(values: Sequence[float]) -> torch.Tensor:
        return torch.from_numpy(np.repeat(values, counts, axis=0)).to(device=device, dtype=dtype)

    def tensors(values: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        present = [v[at] for v, at in zip(values, positions, strict=True) if v is not None]
        complete = len(present) == len(values)
        return torch.cat(present).to(device=device, dtype=dtype) if complete else None

    return Chunk(
        rows=tuple(rows),
        row=np.repeat(np.arange(len(rows)), counts),
        position=np.concatenate(positions),
        targets=ints([row.token_ids[at] for row, at in zip(rows, positions, strict=True)]),
        advantages=floats([row.advantages for row in rows]),
        weight=per_row([row.weight for row in rows]),
        entropy_weight=per_row([row.entropy_weight for row in rows]),
        teacher_weight=per_row([row.teacher_weight for row in rows]),
        span=ints(_span_numbers(rows, positions)),
        sampler_logps=floats([row.logprobs for row in rows]),
        sampled=per_row([float(row.sampled) for row in rows]),
        rollout_log_ratio=per_row([row.rollout_log_ratio[0] for row in rows]),
        rollout_tokens=per_row([row.rollout_log_ratio[1] for row in rows]),
        old_logps=tensors([row.old_logps for row in rows]),
        ref_logps=tensors([row.ref_logps for row in rows]),
        teacher_logps=tensors([row.teacher_logps for row in rows]),
    )


def _span_numbers(rows: Sequence[TrainRow], positions: Sequence[Ints]) -> list[Ints]:
    """For each agent token the number of its step, counted over the chunk."""
    numbers, first = [], 0
    for row, at in zip(rows, positions, strict=True):
        starts = [span.start for span in row.spans]
        numbers.append(first + np.searchsorted(starts, at, side="right") - 1)
        first += len(starts)
    return numbers


@contextmanager
def hidden_states_at(model: Any, index: torch.Tensor, size: int) -> Iterator[list[torch.Tensor]]:
    """Inside the block the output layer of `model`, a causal language model (with an adapter or
    not), computes P tokens of a pass only: its hidden states become those at `index`, an int64
    tensor of shape (P,) over the B·T = `size` tokens of the pass, as (1, P, width). The virtual
    tokens that PEFT's prompt tuning puts before each row are no tokens of the pass. Yields a
    list, to which a pass adds these hidden states as (P, width)."""

    def pick(_: nn.Module, __: Any, output: Any) -> Any:
        hidden = output.last_hidden_state
        hidden = hidden[:, -(size // len(hidden)) :]
        output.last_hidden_state = hidden.flatten(0, 1).index_select(0, index)[None]
        picked.append(output.last_hidden_state[0])
        return output

    picked: list[torch.Tensor] = []

    handle = without_adapter(model).base_model.register_forward_hook(pick)
    try:
        yield picked
    finally:
        handle.remove()
