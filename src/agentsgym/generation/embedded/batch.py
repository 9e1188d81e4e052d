"""The content of each cache row and the request sampled in it, as arrays over rows.

The engine's one invariant: a row knows `known` tokens and has read `cached` of them. A forward pass
reads the difference, whatever it is: a new prompt, an observation, the token that was just sampled,
or all tokens after a reset. If a row's difference has been read completely, one more token is
sampled.
"""

# ruff: noqa: RUF009 - `_column` makes fields

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from agentsgym.generation.sampling import as_seed, sample, uniforms, widest
from agentsgym.types import SamplingParams
from agentsgym.types.rows import Ints
from agentsgym.types.supports import Ids, compact, mask_of


def _column(fill: Any, dtype: Any = np.int64) -> Any:
    """An array over rows; `fill` is the value of a new row."""
    return field(default_factory=lambda: np.full(0, fill, dtype), metadata={"fill": fill})


@dataclass(slots=True)
class RowTable:
    """Parallel arrays [rows]; `tokens` and `logprobs` are [rows, length]. `row_of` has the row of
    each session that has one."""

    row_of: dict[str, int] = field(default_factory=dict)
    tokens: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    logprobs: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    sessions: list[str | None] = field(default_factory=list)
    cached: Ints = _column(0)  # tokens whose keys and values the memory holds
    known: Ints = _column(0)  # tokens of the context and those sampled after it
    context: Ints = _column(0)  # tokens of the open request's context
    limit: Ints = _column(0)  # upper limit of `known`
    active: npt.NDArray[np.bool_] = _column(False, np.bool_)  # whether a request is sampled here
    order: Ints = _column(0)  # when the row was last admitted; the smallest is the oldest
    source: Ints = _column(-1)  # row to copy the start of the prompt from, -1: none
    shared: Ints = _column(0)  # how many tokens to copy from there
    family: Ints = _column(-1)  # rows that begin with the same `prefix` tokens, -1: none
    prefix: Ints = _column(0)
    seed: npt.NDArray[np.uint64] = _column(0, np.uint64)
    sampled_before: Ints = _column(0)
    temperature: npt.NDArray[np.float64] = _column(1.0, np.float64)
    top_p: npt.NDArray[np.float64] = _column(1.0, np.float64)
    top_k: Ints = _column(0)
    has_stop: npt.NDArray[np.bool_] = _column(False, np.bool_)

    def __len__(self) -> int:
        return len(self.sessions)

    def grow(self, rows: int, length: int) -> None:
        """Make room for so many rows of so many tokens."""
        for each in fields(self):
            if each.metadata:
                old = getattr(self, each.name)
                column = np.full(rows, each.metadata["fill"], old.dtype)
                column[: len(self)] = old
                setattr(self, each.name, column)
        for name in ("tokens", "logprobs"):
            old = getattr(self, name)
            new = np.zeros((rows, length), dtype=old.dtype)
            new[: old.shape[0], : old.shape[1]] = old
            setattr(self, name, new)
        self.sessions += [None] * (rows - len(self))

    def give(self, row: int, session_id: str) -> None:
        """Let a free row be the session's."""
        self.sessions[row] = session_id
        self.row_of[session_id] = row

    def open(
        self, row: int, context: Ints, sampling: SamplingParams, seed: int, sampled_before: int
    ) -> int:
        """Start sampling after `context` in `row`; returns how many of its tokens are cached."""
        reused = min(shared_prefix(self.tokens[row, : self.cached[row]], context), len(context) - 1)
        self.tokens[row, reused : len(context)] = context[reused:]
        self.cached[row] = reused
        self.known[row] = self.context[row] = len(context)
        self.active[row] = True
        self.source[row] = -1
        if reused < self.prefix[row]:
            self.leave(row)
        self.seed[row] = as_seed(seed)
        self.sampled_before[row] = sampled_before
        self.temperature[row] = sampling.temperature
        self.top_p[row] = sampling.top_p
        self.top_k[row] = sampling.top_k
        self.has_stop[row] = bool(sampling.stop or sampling.stop_token_ids)
        return reused

    def free(self, row: int) -> None:
        """Drop the row's session and its cache."""
        self.row_of.pop(self.sessions[row] or "", None)
        self.sessions[row] = None
        self.active[row] = False
        self.cached[row] = self.known[row] = self.order[row] = 0
        self.source[row] = -1
        self.leave(row)

    def join(self, row: int, source: int, shared: int, number: int) -> None:
        """Let a row whose first `shared` tokens are those of `source` be of its family, or of a
        new one with this number."""
        if self.family[source] < 0:
            self.family[source], self.prefix[source] = number, shared
        if self.prefix[source] <= shared:
            self.family[row], self.prefix[row] = self.family[source], self.prefix[source]

    def leave(self, row: int) -> None:
        """Let a row be of no family."""
        self.family[row], self.prefix[row] = -1, 0

    def sampled_tokens(self, row: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Ids and log-probabilities sampled for the open request so far."""
        span = slice(int(self.context[row]), int(self.known[row]))
        return tuple(self.tokens[row, span].tolist()), tuple(self.logprobs[row, span].tolist())


def shared_prefix(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> int:
    """Length of the longest common prefix."""
    count = min(len(left), len(right))
    differing = np.flatnonzero(left[:count] != right[:count])
    return int(differing[0]) if len(differing) else count


class Sampled(NamedTuple):
    """`ids` [n] and their `logprobs` [n], and for each the ids that it was chosen from, None for
    the whole vocabulary; none of them if that is so for all."""

    ids: Ints
    logprobs: npt.NDArray[np.floating[Any]]
    supports: Sequence[Ids | None] = ()


def sample_tokens(
    table: RowTable,
    rows: Ints,
    logits: torch.Tensor,
    allowed: Sequence[Ids | None] = (),
    columns: Ids | None = None,
) -> Sampled:
    """Sample a token for each of `rows` [n] from `logits` [n, vocab]; `allowed` are the ids that
    may be sampled for each, which may be `compact`, None for all of them. With `columns` [m],
    ascending, there are logits [n, m] of these ids only, and each row may sample some only."""
    if columns is not None:
        own = [np.searchsorted(columns, ids).astype(np.int32) for ids in allowed if ids is not None]
        among = sample_tokens(table, rows, logits, own)
        size = len(columns)
        chosen = [columns[mask_of(ids, size)] for ids in among.supports if ids is not None]
        return Sampled(columns[among.ids].astype(np.int64), among.logprobs, chosen)
    noise = _on(logits.device, noise_of(table, rows))
    if any(ids is not None for ids in allowed):
        logits = _among(logits, allowed)
    ids, logprobs, kept = sample(logits, noise, *_parameters(table, rows, logits.device))
    supports = list(allowed)
    if kept is not None:
        left = kept.cpu().numpy()
        supports = supports or [None] * len(rows)
        for i in np.flatnonzero(truncates(table, rows)):
            supports[i] = compact(left[i])
    return Sampled(ids.cpu().numpy(), logprobs.cpu().numpy(), supports)


def truncates(table: RowTable, rows: Ints) -> npt.NDArray[np.bool_]:
    """Whether top-k or top-p cuts the distribution of each of `rows` [n]."""
    return (table.top_k[rows] > 0) | (table.top_p[rows] < 1)


def _among(logits: torch.Tensor, allowed: Sequence[Ids | None]) -> torch.Tensor:
    """The logits with -inf for ids that are not allowed."""
    some = [(i, ids) for i, ids in enumerate(allowed) if ids is not None]
    outside = np.zeros(logits.shape, np.bool_)
    for i, ids in some:
        outside[i] = ~mask_of(ids, outside.shape[1])
    return logits.masked_fill(torch.from_numpy(outside).to(logits.device), -torch.inf)


def noise_of(table: RowTable, rows: Ints) -> npt.NDArray[np.float64]:
    """The uniforms [n] of the next token of each of `rows` [n]."""
    index = table.sampled_before[rows] + table.known[rows] - table.context[rows]
    return uniforms(table.seed[rows], index)


def _parameters(
    table: RowTable, rows: Ints, device: torch.device
) -> tuple[torch.Tensor | None, ...]:
    """Temperature, top-k and top-p of `rows`, each None where no row uses it."""
    columns = (
        (table.temperature[rows], 1.0),
        (table.top_k[rows], 0),
        (table.top_p[rows], 1.0),
    )
    return tuple(_on(device, values) if (values != off).any() else None for values, off in columns)


def _on(device: torch.device, values: npt.NDArray[Any]) -> torch.Tensor:
    tensor = torch.from_numpy(values)
    return tensor.to(device, widest(device) if tensor.is_floating_point() else None)
