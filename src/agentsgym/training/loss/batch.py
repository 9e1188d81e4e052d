"""The loss's inputs: rollouts with their advantages, in rows, packed for forward passes of bounded
size."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

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


def weightless(pad_token_id: int) -> TrainRow:
    """A row that costs one short forward pass and carries no loss."""
    nothing = np.zeros(2, np.int64)
    pads = np.full(2, pad_token_id, np.int32)
    return TrainRow(pads, nothing, np.zeros(2, np.float32), (), True, np.zeros(2))


# -- chunks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """B rows padded on the right to a common length T.

    `input_ids`, `attention_mask` int64 and `labels` int64 (-100 off agent tokens) have shape
    (B, T). Aligned with `labels[:, 1:]`, so of shape (B, T-1): `mask` (1.0 on agent tokens),
    `advantages`, `weight`, `entropy_weight`, `span` int64 (number of the step within the chunk,
    -1 off agent tokens), `sampler_logps` with `sampled` (1.0 if an engine gave them), and, if the
    loss uses them, `old_logps` and `ref_logps`. `rollout_log_ratio` has shape (B, 2).
    `aux_weight` is the chunk's share of the window's tokens.
    """

    rows: tuple[TrainRow, ...]
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor
    mask: torch.Tensor
    advantages: torch.Tensor
    weight: torch.Tensor
    entropy_weight: torch.Tensor
    span: torch.Tensor
    sampler_logps: torch.Tensor
    sampled: torch.Tensor
    rollout_log_ratio: torch.Tensor
    old_logps: torch.Tensor | None
    ref_logps: torch.Tensor | None
    aux_weight: float


class HasLength(Protocol):
    """A row of tokens."""

    @property
    def length(self) -> int:
        """Number of tokens."""
        ...


R = TypeVar("R", bound=HasLength)


def pack(rows: Iterable[R], max_tokens: int) -> list[list[R]]:
    """Divide rows into chunks of at most `max_tokens` padded tokens, with rows of similar length
    together. A row longer than that gets its own chunk."""
    chunks: list[list[R]] = []
    for row in sorted(rows, key=lambda r: r.length):
        if not chunks or (len(chunks[-1]) + 1) * row.length > max_tokens:
            chunks.append([])
        chunks[-1].append(row)
    return chunks


def collate(
    rows: Sequence[TrainRow],
    pad_token_id: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    multiple: int | None = None,
) -> Chunk:
    """Pad rows to the tensors of a Chunk, to a length that is a multiple of `multiple`; `dtype` is
    the type of its floating-point tensors."""
    length = padded_length(rows, multiple)

    def ints(values: Sequence[ArrayLike], fill: int) -> torch.Tensor:
        return torch.from_numpy(padded(values, length, fill, np.int64)).to(device)

    def floats(values: Sequence[ArrayLike]) -> torch.Tensor:
        full = torch.from_numpy(padded(values, length, 0.0, np.float64))
        return full.to(device=device, dtype=dtype)[:, 1:]

    def per_row(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)[:, None]

    input_ids = ints([row.token_ids for row in rows], pad_token_id)
    agent = ints([row.agent_token_mask for row in rows], 0)
    mask = agent[:, 1:].to(dtype)
    return Chunk(
        rows=tuple(rows),
        input_ids=input_ids,
        attention_mask=ints([[1] * row.length for row in rows], 0),
        labels=input_ids.masked_fill(agent == 0, -100),
        mask=mask,
        advantages=floats([row.advantages for row in rows]) * mask,
        weight=per_row([row.weight for row in rows]) * mask,
        entropy_weight=per_row([row.entropy_weight for row in rows]) * mask,
        span=ints(_span_numbers(rows), -1)[:, 1:],
        sampler_logps=floats([row.logprobs for row in rows]),
        sampled=per_row([float(row.sampled) for row in rows]) * mask,
        rollout_log_ratio=torch.tensor(
            [row.rollout_log_ratio for row in rows], dtype=dtype, device=device
        ),
        old_logps=_stack([row.old_logps for row in rows], length, device, dtype),
        ref_logps=_stack([row.ref_logps for row in rows], length, device, dtype),
        aux_weight=sum(row.aux_weight for row in rows),
    )


def padded_length(rows: Sequence[TrainRow], multiple: int | None = None) -> int:
    """The common length of rows in a chunk."""
    longest = max(row.length for row in rows)
    return longest if multiple is None else -(-longest // multiple) * multiple


def padded(
    values: Sequence[ArrayLike], length: int, fill: float, dtype: type[np.generic]
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Rows of the given length, filled up on the right."""
    result = np.full((len(values), length), fill, dtype=dtype)
    for i, row in enumerate(map(np.asarray, values)):
        result[i, : len(row)] = row
    return result


def _span_numbers(rows: Sequence[TrainRow]) -> list[list[int]]:
    """For each token the number of its step, counted over the chunk; -1 off agent tokens."""
    numbers = []
    number = 0
    for row in rows:
        own = [-1] * row.length
        for span in row.spans:
            own[span.start : span.stop] = [number] * span.length
            number += 1
        numbers.append(own)
    return numbers


def _stack(
    parts: Sequence[torch.Tensor | None], length: int, device: torch.device, dtype: torch.dtype
) -> torch.Tensor | None:
    """Per-row tensors of shape (T,) as one (B, T-1), aligned with the labels."""
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    rows = [torch.nn.functional.pad(part, (0, length - len(part))) for part in present]
    return torch.stack(rows).to(device=device, dtype=dtype)[:, 1:]


@contextmanager
def logits_only_at(head: nn.Module, rows: Any, positions: Any) -> Iterator[None]:
    """Inside the block the output layer computes the logits of these P (row, position) only: shape
    (1, P, vocabulary). `rows` and `positions` are lists or int64 tensors of length P."""

    def pick(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (arguments[0][rows, positions][None], *arguments[1:])

    handle = head.register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()
