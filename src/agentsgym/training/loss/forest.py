"""Rows as a forest of prefixes: a token that several rows share is read once.

Sorted by their ids, a row before its beginnings, each row begins with what it shares with the row
before it. Only the rest, its branch, is read: the branches of a chunk are one packed sequence, each
token at the position that it has in its row. In attention a branch reads the keys of its row's
whole path. Rows of a group share their prompt, rows per step or per program all but their last
tokens, and a row that is the beginning of another one has no branch at all. Losses are per token
and their weights fixed before, so nothing else changes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentsgym.generation.embedded.attention import ROUND_KEYS, AttentionGroup
from agentsgym.generation.embedded.batch import shared_prefix
from agentsgym.training.loss.answers import WholeRows
from agentsgym.training.loss.batch import TrainRow
from agentsgym.training.loss.layout import PaddedRows
from agentsgym.types.rows import Ints

PAYS_FROM = 1.2
"""Padded tokens per token of the forest from which it is faster than padded rows: on a CPU 1.23
gave 1.13 to 1.16."""

# Branches attend together if padding adds at most this share to their products of queries and keys,
# or so few that another call of the kernel would cost more.
_WASTE, _FEW = 0.3, 8192


def by_prefix(rows: Sequence[TrainRow]) -> tuple[list[TrainRow], Ints]:
    """Rows in the descending order of their ids' bytes, and how many tokens each shares with the
    row before it: int64, shape (rows,). No other order shares more, or has longer branches.
    """
    ordered = sorted(rows, key=lambda row: row.token_ids.tobytes(), reverse=True)
    shared = np.zeros(len(ordered), np.int64)
    for i in range(1, len(ordered)):
        shared[i] = shared_prefix(ordered[i - 1].token_ids, ordered[i].token_ids)
    return ordered, shared


def distinct_tokens(rows: Sequence[TrainRow]) -> int:
    """Number of different beginnings of rows: the tokens that one forest of them reads."""
    ordered, shared = by_prefix(rows)
    return sum(row.length for row in ordered) - int(shared.sum())


def cuts(lengths: Ints, shared: Ints, max_tokens: int, key: float = 0.0) -> list[slice]:
    """Divide sorted rows into chunks of at most `max_tokens` tokens, such that the tokens that a
    cut repeats, the shared ones of the row after it, are as few as possible. A token that a row's
    branch gathers from its path counts as `key` tokens more.

    A row longer than that shares its chunk with nothing but its beginnings.
    """
    ends = np.cumsum(lengths - shared)
    opening = lengths - ends  # a chunk from row i to row j has ends[j] + opening[i] tokens
    paths = key * lengths * (lengths > shared)
    gathered = np.cumsum(paths)
    before = key * lengths - gathered  # the first row of a chunk has a branch
    best = np.zeros(len(lengths) + 1, np.int64)
    begin = np.zeros(len(lengths), np.int64)
    low = 0
    for j in range(len(lengths)):
        while low < j and ends[j] + opening[low] + gathered[j] + before[low] > max(
            max_tokens, (1 + key) * lengths[low]
        ):
            low += 1
        totals = best[low : j + 1] + opening[low : j + 1]
        begin[j] = low + int(totals.argmin())
        best[j + 1] = ends[j] + totals.min()
    chunks: list[slice] = []
    stop = len(lengths)
    while stop:
        start = int(begin[stop - 1])
        chunks.append(slice(start, stop))
        stop = start
    return chunks[::-1]


class Forest:
    """Rows sorted by prefix as one packed sequence of N tokens, each distinct one once. `shared` as
    from `by_prefix`."""

    def __init__(self, rows: Sequence[TrainRow], shared: Ints) -> None:
        self.rows = rows
        lengths = np.array([row.length for row in rows])
        starts = shared.copy()
        starts[0] = 0
        self.tokens = self.size = int((lengths - starts).sum())
        self._branches = list(_alike(starts, lengths))
        self._starts, self._lengths = starts, lengths
        self._nodes = self._number()

    def _number(self) -> list[Ints]:
        """The place of every row's tokens in the packed sequence."""
        first = np.zeros(len(self.rows), np.int64)
        order = np.concatenate(self._branches)
        sizes = (self._lengths - self._starts)[order]
        first[order] = np.cumsum(sizes) - sizes
        nodes: list[Ints] = []
        for i, (start, length) in enumerate(zip(self._starts, self._lengths, strict=True)):
            path = nodes[-1][:start] if i else np.zeros(0, np.int64)
            nodes.append(np.concatenate([path, first[i] + np.arange(length - start)]))
        return nodes

    def inputs(self, device: torch.device) -> dict[str, Any]:
        """`input_ids` and `position_ids`, int64, shape (1, N), and the groups of branches that
        attend together."""
        packed = np.zeros((2, self.size), np.int64)
        for row, start, nodes in zip(self.rows, self._starts, self._nodes, strict=True):
            packed[0, nodes[start:]] = row.token_ids[start:]
            packed[1, nodes[start:]] = np.arange(start, row.length)
        ids, positions = torch.from_numpy(packed).to(device).unbind()
        return {
            "input_ids": ids[None],
            "position_ids": positions[None],
            "packed_groups": list(self._groups(device)),
        }

    def _groups(self, device: torch.device) -> Iterator[AttentionGroup]:
        first = 0
        for branches in self._branches:
            starts, lengths = self._starts[branches], self._lengths[branches]
            paths = [self._nodes[i] for i in branches]
            yield BranchGroup(starts, lengths, paths, first, device)
            first += int((lengths - starts).sum())

    def index(self, row: Ints, position: Ints) -> Ints:
        """Where tokens stand among the N."""
        offsets = np.cumsum(self._lengths) - self._lengths
        result: Ints = np.concatenate(self._nodes)[offsets[row] + position]
        return result


Layout = PaddedRows | Forest | WholeRows
"""The rows of one forward pass: `size` tokens that the model reads, of which `tokens` are not
padding."""


def _alike(starts: Ints, lengths: Ints) -> Iterator[Ints]:
    """The rows that have a branch, in groups of similar shape, which are padded to the longest
    branch and path of the group."""
    sizes = lengths - starts
    group: list[int] = []
    needed = 0
    shape = (0, 0)
    for i in np.lexsort((lengths, sizes, starts > 0)):
        if not sizes[i]:
            continue
        widest = max(shape[0], sizes[i]), max(shape[1], lengths[i])
        products = needed + sizes[i] * lengths[i]
        waste = (len(group) + 1) * widest[0] * widest[1] - products
        wasteful = waste > max(_WASTE * products, _FEW)
        # Branches from the first token need no mask if they are by themselves.
        if group and (wasteful or (starts[i] > 0) != (starts[group[0]] > 0)):
            yield np.array(group)
            group, widest = [], (sizes[i], lengths[i])
            products = sizes[i] * lengths[i]
        group.append(int(i))
        needed, shape = products, widest
    yield np.array(group)


class BranchGroup(AttentionGroup):
    """Branches of a forest that attend together: `starts` [n] tokens of each path are read by other
    branches, those up to `lengths` [n] by its own; `paths` are the places of all of them."""

    def __init__(
        self,
        starts: Ints,
        lengths: Ints,
        paths: Sequence[Ints],
        first: int,
        device: torch.device,
    ) -> None:
        causal = not starts.any()
        # A mask with as many keys as kernels like; without one there are as many as queries.
        longest = int(lengths.max()) + (0 if causal else ROUND_KEYS)
        super().__init__(np.arange(len(starts)), starts, lengths - starts, first, longest, device)
        self.causal = causal
        index = np.zeros((len(starts), self.keys), np.int64)
        for i, path in enumerate(paths):
            index[i, : len(path)] = path
        self._index = torch.from_numpy(index).to(device)

    def _select(self, plane: Tensor) -> Tensor:
        """The paths' keys or values, [n, kv_heads, keys, dim], of a plane [1, kv_heads, N, dim]."""
        by_token = plane[0].transpose(0, 1)
        paths = by_token.index_select(0, self._index.flatten())
        return paths.reshape(*self._index.shape, *paths.shape[1:]).transpose(1, 2)
