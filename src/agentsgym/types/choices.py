"""The answers that a request allows, as sequences of token ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from agentsgym.types.supports import Ids

_END = -1


class AnswerWalk(Protocol):
    """An answer that is being chosen, token by token. `allowed` are the ids that may come next,
    ascending or `compact`, none at the end; `error` says why it cannot go on, "" if it can."""

    @property
    def allowed(self) -> Ids: ...

    @property
    def error(self) -> str: ...

    def take(self, token: int) -> bool:
        """Go on with an allowed id; returns whether the answer is complete."""

    def forced(self) -> list[int]:
        """Go on for as long as one id alone may come next; returns these ids."""


class Answers(Protocol):
    """The answers that a request allows. They are chosen token by token, or as a `whole`; none has
    more tokens than `longest`, which is 0 where they may have any number. `body` is what a request
    to `serve-model` says of them."""

    @property
    def whole(self) -> bool: ...

    @property
    def longest(self) -> int: ...

    @property
    def body(self) -> dict[str, Any]: ...

    def walk(self, tokenizer: Any, vocabulary: int) -> AnswerWalk:
        """The beginning of an answer by a model of so many ids. Raises ValueError if it can give
        none of them, or not all."""


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The sequences of ids that an answer may be, none of which begins another one.

    `table` (int32, shape (n, longest)) has a sequence in each row, -1 after its end; rows ascend.
    What follows a beginning is a range of rows: (its length, the first row, the row after the
    last). An answer is chosen token by token, or as a `whole`. Raises ValueError for a table
    without rows, or with one that begins another.
    """

    table: Ids
    whole: bool = False
    _known: dict[tuple[int, int, int], tuple[Ids, list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.table.size or (self.table[:, 0] == _END).any():
            raise ValueError("there is nothing to choose from")
        lengths = (self.table != _END).sum(1)
        same = self.table[:-1] == self.table[1:]
        within = np.arange(self.table.shape[1]) < lengths[:-1, None]
        if (same | ~within).all(1).any():
            raise ValueError("one of the sequences begins another one")

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]], *, whole: bool = False) -> Self:
        """These sequences, each once."""
        rows = sorted({tuple(one) for one in sequences})
        table = np.full((len(rows), max(map(len, rows), default=0)), _END, np.int32)
        for number, row in enumerate(rows):
            table[number, : len(row)] = row
        return cls(table, whole)

    @classmethod
    def of_support(cls, ids: Ids) -> Self:
        """Those that an answer was chosen from as a whole, by the `support` of its first token."""
        parts = np.split(ids, np.flatnonzero(ids == _END))[:-1]
        return cls.of((part[part != _END].tolist() for part in parts), whole=True)

    @property
    def support(self) -> Ids:
        """The sequences one after the other, with -1 after each."""
        closed = np.pad(self.table, ((0, 0), (0, 1)), constant_values=_END)
        lengths = (self.table != _END).sum(1)
        flat: Ids = closed[np.arange(closed.shape[1]) <= lengths[:, None]]
        return flat

    def __reduce__(self) -> tuple[type[Self], tuple[Ids, bool]]:
        return type(self), (self.table, self.whole)

    @property
    def longest(self) -> int:
        """The length of the longest sequence."""
        return int(self.table.shape[1])

    @property
    def body(self) -> dict[str, Any]:
        """What a request to `serve-model` says of them."""
        return {"allowed_answers": [[id for id in row if id >= 0] for row in self.table.tolist()]}

    def walk(self, tokenizer: Any, vocabulary: int) -> "Walk":
        """The beginning of an answer. Raises ValueError if the model lacks an id."""
        outside = self.table[(self.table < _END) | (self.table >= vocabulary)]
        if len(outside):
            own = f"token id {outside[0]}, outside the vocabulary of {vocabulary}"
            raise ValueError(f"an allowed answer has {own}")
        return Walk(self)

    def after(self, place: tuple[int, int, int]) -> tuple[Ids, list[int]]:
        """The ids that may follow a beginning, ascending, and the first row of each, with the row
        after the last; no ids where it is a whole sequence."""
        known = self._known.get(place)
        if known is None:
            depth, first, stop = place
            column = self.table[first:stop, depth] if depth < self.longest else self.table[:0, 0]
            ids, begins = np.unique(column, return_index=True)
            ids, begins = ids[ids != _END], begins[ids != _END]
            known = self._known[place] = ids, [*(begins + first).tolist(), stop]
        return known


@dataclass(frozen=True, slots=True, eq=False)
class Trie:
    """The E beginnings of some sequences, each once, and before those that go on from it.

    int64: `tokens` (E,) has the last id of each, `parents` (E,) the beginning without it, -1 for
    none, and `depths` (E,) its number of ids before the last; `paths` (n, longest) has the
    beginnings of each sequence, -1 after its end. `inner` (int64) are those that others go on from.
    """

    tokens: NDArray[np.int64]
    parents: NDArray[np.int64]
    depths: NDArray[np.int64]
    inner: NDArray[np.int64]
    paths: NDArray[np.int64]

    def totals(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum over the beginnings of each sequence, (n,), of `values` (E,)."""
        sums: NDArray[Any] = np.append(values, 0.0)[self.paths].sum(1)
        return sums

    def seen_by(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of k beginnings, ascending and each with all that it goes on from, each of them
        goes on from, itself among them; (k, k)."""
        seen = np.eye(len(nodes), dtype=np.bool_)
        parents = self.parents[nodes]
        for k, above in enumerate(np.searchsorted(nodes, parents).tolist()):
            if parents[k] >= 0:
                seen[k] |= seen[above]
        return seen


@lru_cache(maxsize=64)
def trie_of(choices: Choices) -> Trie:
    """The beginnings of an answer."""
    table, own = choices.table, choices.table != _END
    begins = own.copy()
    begins[1:] &= ~(table[1:] == table[:-1]).cumprod(1).astype(np.bool_)
    numbers = np.full(table.shape, -1)
    numbers[begins] = np.arange(begins.sum())
    paths = np.where(own, np.maximum.accumulate(numbers, 0), -1)
    parents = np.pad(paths[:, :-1], ((0, 0), (1, 0)), constant_values=-1)[begins]
    depths = np.broadcast_to(np.arange(table.shape[1]), table.shape)[begins]
    inner = np.unique(parents[parents >= 0])
    return Trie(table[begins].astype(np.int64), parents, depths, inner, paths)


@dataclass(slots=True)
class Walk:
    """An answer that is being chosen, token by token."""

    choices: Choices
    place: tuple[int, int, int] = field(init=False)
    error: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.place = 0, 0, len(self.choices.table)

    @property
    def allowed(self) -> Ids:
        """The ids that may come next, ascending; none at the end."""
        return self.choices.after(self.place)[0]

    def take(self, token: int) -> bool:
        """Go on with an allowed id; returns whether the answer is complete."""
        ids, rows = self.choices.after(self.place)
        number = int(np.searchsorted(ids, token))
        self.place = self.place[0] + 1, rows[number], rows[number + 1]
        return not len(self.allowed)

    def forced(self) -> list[int]:
        """Go on for as long as one id alone may come next; returns these ids."""
        taken: list[int] = []
        while len(self.allowed) == 1:
            taken.append(int(self.allowed[0]))
            self.take(taken[-1])
        return taken
