"""Answers that are chosen as wholes, an answer a with a probability proportional to the product of
those of its tokens in the whole vocabulary, exp(Σ log p). All beginnings of answers are read as one
tree after the context, each once, and forgotten.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agentsgym.generation.embedded.attention import TreeGroup
from agentsgym.generation.embedded.batch import RowTable
from agentsgym.generation.embedded.head import head_over
from agentsgym.generation.embedded.kv_cache import KVMemory, PassCache
from agentsgym.types.choices import Choices, Trie, trie_of
from agentsgym.types.rows import Ints

Floats = npt.NDArray[np.float64]

MOST_READ = 512
"""Beginnings that a pass reads, each of which gives logits."""


class _Part(NamedTuple):
    """Beginnings of the answers of one of some rows, by its number: `nodes` that a pass reads, of
    which the first `known` were scored already, and others go on from them."""

    number: int
    nodes: Ints
    known: int


def slots(choices: Choices) -> int:
    """The tokens beside the context that a row holds while the answers are scored."""
    return min(len(trie_of(choices).inner), MOST_READ) + choices.longest


def score_answers(
    model: Any, memory: KVMemory, table: RowTable, rows: Ints, tries: Sequence[Trie], logits: Tensor
) -> list[Floats]:
    """For each of `rows` [n] the Σ log p (nats) of its answers, whose beginnings are `tries`, at
    the row's temperature. `logits` [n, vocab] are those after the contexts, which are cached."""
    scores = [np.zeros(len(trie.tokens)) for trie in tries]
    heat = [float(table.temperature[row]) or 1.0 for row in rows]
    for k, trie in enumerate(tries):
        _score(scores[k], trie, np.array([-1]), logits[k : k + 1] / heat[k])
    for parts in _passes(tries):
        read = _read(model, memory, table, rows, tries, parts, logits.device)
        for (k, nodes, known), own in zip(parts, read, strict=True):
            _score(scores[k], tries[k], nodes[known:], own[known:] / heat[k])
    return [trie.totals(own) for trie, own in zip(tries, scores, strict=True)]


def _score(scores: Floats, trie: Trie, nodes: Ints, logits: Tensor) -> None:
    """Score what goes on from each of some beginnings by the logits after it."""
    after = np.flatnonzero(np.isin(trie.parents, nodes))
    at = torch.from_numpy(np.searchsorted(nodes, trie.parents[after])).to(logits.device)
    tokens = torch.from_numpy(trie.tokens[after]).to(logits.device)
    scores[after] = (logits[at, tokens] - logits.logsumexp(-1)[at]).cpu().numpy()


def _passes(tries: Sequence[Trie]) -> Iterator[list[_Part]]:
    """All beginnings that others go on from, in passes."""
    parts: list[_Part] = []
    for k, trie in enumerate(tries):
        for first in range(0, len(trie.inner), MOST_READ):
            nodes = trie.inner[first : first + MOST_READ]
            above, parent = [], int(trie.parents[nodes[0]])
            while parent >= 0:
                above.append(parent)
                parent = int(trie.parents[parent])
            nodes = np.array([*above[::-1], *nodes], np.int64)
            if parts and sum(len(part.nodes) for part in parts) + len(nodes) > MOST_READ:
                yield parts
                parts = []
            parts.append(_Part(k, nodes, len(above)))
    if parts:
        yield parts


def _read(
    model: Any,
    memory: KVMemory,
    table: RowTable,
    rows: Ints,
    tries: Sequence[Trie],
    parts: Sequence[_Part],
    device: torch.device,
) -> tuple[Tensor, ...]:
    """The float32 logits after the nodes of each part."""
    inputs, groups, first = [], [], 0
    own_rows, sizes = rows[[part.number for part in parts]], [len(part.nodes) for part in parts]
    memory.fit(own_rows, table.known[own_rows] + sizes)
    for k, nodes, _ in parts:
        row, context, trie = rows[k], int(table.known[rows[k]]), tries[k]
        total = context + len(nodes)
        depths = np.concatenate((np.arange(context), context + trie.depths[nodes]))
        at = memory.address(np.full(total, row), np.arange(total))
        seen = np.concatenate((np.ones((len(nodes), context), np.bool_), trie.seen_by(nodes)), 1)
        groups.append(TreeGroup(*at, seen, depths, first, device))
        own = (column[context:] for column in (depths, *at))
        inputs.append(np.stack((trie.tokens[nodes], *own)))
        first += len(nodes)
    ids, positions, blocks, places = torch.from_numpy(np.concatenate(inputs, 1)).to(device)
    with head_over(model):
        output = model(
            input_ids=ids[None],
            position_ids=positions[None],
            past_key_values=PassCache(memory, blocks, places),
            use_cache=True,
            packed_groups=groups,
        )
    return torch.split(output.logits[0].float(), sizes)
