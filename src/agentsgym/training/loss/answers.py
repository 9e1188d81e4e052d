"""Rows whose answers were chosen as wholes: their log-probabilities need those of all answers that
there were to choose from, whose beginnings are read as a tree beside the row, each once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from agentsgym.generation.embedded.attention import TreeGroup
from agentsgym.training.loss.batch import TrainRow
from agentsgym.training.trl_base import score_labels
from agentsgym.types.choices import Choices, Trie, trie_of
from agentsgym.types.rows import Ints
from agentsgym.types.supports import Ids


class WholeRow:
    """A row of T tokens, and its `length` with those that are read beside it. `inputs`, int64, are
    ids and positions, (2, length), and `seen` says which tokens each sees, (length, length)."""

    def __init__(self, row: TrainRow) -> None:
        self.row = row
        chosen = {place: Choices.of_support(ids) for place, ids in row.supports if ids[-1] == -1}
        tries = {place: trie_of(choices) for place, choices in chosen.items() if place}
        size, self.length = row.length, row.length + sum(len(t.inner) for t in tries.values())
        self.inputs = np.zeros((2, self.length), np.int64)
        self.inputs[:, :size] = row.token_ids, np.arange(size)
        self.seen = np.tri(self.length, dtype=np.bool_)
        self._answers: dict[int, tuple[Trie, Ints, int]] = {}
        for place, trie in tries.items():
            own = slice(size, size + len(trie.inner))
            self.inputs[:, own] = trie.tokens[trie.inner], place + trie.depths[trie.inner]
            self.seen[own, place:] = False
            self.seen[own, own] = trie.seen_by(trie.inner)
            after = np.searchsorted(trie.inner, trie.parents) + size
            after = np.where(trie.parents < 0, place - 1, after)
            self._answers[place] = trie, after, _taken(chosen[place], row.token_ids[place:])
            size = own.stop
        every = [row.positions - 1, *(after for _, after, _ in self._answers.values())]
        self.read = np.unique(np.concatenate(every))
        """The tokens whose logits are needed, (R,)."""

    def scores(self, logits: torch.Tensor, temperature: float) -> torch.Tensor:
        """Log-probabilities and entropies (nats) of the row's tokens with loss, (P, 2), by the
        logits (R, vocab) after `read`. The first token of an answer has those of the answer."""
        if logits.dtype != torch.float64:
            logits = logits.float()
        table = torch.log_softmax(logits / temperature, -1)

        def on_device(values: Ints | Ids) -> torch.Tensor:
            return torch.from_numpy(values.astype(np.int64)).to(logits.device)

        at = self.row.positions
        own = table[on_device(np.searchsorted(self.read, at - 1))]
        labels = on_device(self.row.token_ids[at])
        scores = list(torch.stack(score_labels(own, labels, 1.0), 1))
        for number, place in enumerate(at.tolist()):
            if place in self._answers:
                trie, after, taken = self._answers[place]
                read = on_device(np.searchsorted(self.read, after))
                logps = table[read, on_device(trie.tokens)]
                totals = torch.cat((logps, logps.new_zeros(1)))[on_device(trie.paths)].sum(-1)
                label = torch.tensor(taken, device=logits.device)
                scores[number] = torch.stack(score_labels(totals, label, 1.0))
        return torch.stack(scores)


def _taken(choices: Choices, token_ids: Ids) -> int:
    """The number of the choice with which these ids begin."""
    said = np.full(choices.longest, -2)
    own = token_ids[: choices.longest]
    said[: len(own)] = own
    return int(((choices.table == said) | (choices.table < 0)).all(1).argmax())


class WholeRows:
    """Rows with what is read beside them as one packed sequence of N tokens: a `Layout`."""

    def __init__(self, rows: Sequence[WholeRow]) -> None:
        self._rows, self.rows = rows, [one.row for one in rows]
        lengths = np.array([one.length for one in rows])
        self._first = np.cumsum(lengths) - lengths
        self.size = self.tokens = int(lengths.sum())
        starts = zip(rows, self._first, strict=True)
        self.read = np.concatenate([one.read + first for one, first in starts])
        """The tokens whose logits are needed."""

    def inputs(self, device: torch.device) -> dict[str, Any]:
        """`input_ids` and `position_ids`, int64, shape (1, N), and the rows' groups."""
        groups = []
        for first, one in zip(self._first.tolist(), self._rows, strict=True):
            at = np.arange(first, first + one.length)
            groups.append(TreeGroup(np.zeros_like(at), at, one.seen, one.inputs[1], first, device))
        packed = np.concatenate([one.inputs for one in self._rows], 1)
        ids, positions = torch.from_numpy(packed).to(device)
        return {"input_ids": ids[None], "position_ids": positions[None], "packed_groups": groups}

    def index(self, row: Ints, position: Ints) -> Ints:
        """Where tokens stand among the N."""
        return np.asarray(self._first[row] + position)

    def scores(self, logits: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies (nats) of the rows' tokens with loss, (P,), by the logits
        after `read`."""
        parts = torch.split(logits, [len(one.read) for one in self._rows])
        own = [one.scores(part, temperature) for one, part in zip(self._rows, parts, strict=True)]
        logps, entropy = torch.cat(own).unbind(1)
        return logps, entropy
