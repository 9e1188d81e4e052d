"""The answers that a request allows, as sequences of token ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from agentsgym.types.supports import Ids

_END = -1


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The sequences of ids that an answer may be, none of which begins another one.

    `table` (int32, shape (n, longest)) has a sequence in each row, -1 after its end; rows ascend.
    What follows a beginning is a range of rows: (its length, the first row, the row after the
    last). Raises ValueError for a table without rows, or with one that begins another.
    """

    table: Ids
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
    def of(cls, sequences: Iterable[Sequence[int]]) -> Self:
        """These sequences, each once."""
        rows = sorted({tuple(one) for one in sequences})
        table = np.full((len(rows), max(map(len, rows), default=0)), _END, np.int32)
        for number, row in enumerate(rows):
            table[number, : len(row)] = row
        return cls(table)

    def __reduce__(self) -> tuple[type[Self], tuple[Ids]]:
        return type(self), (self.table,)

    @property
    def longest(self) -> int:
        """The length of the longest sequence."""
        return int(self.table.shape[1])

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


@dataclass(slots=True)
class Walk:
    """An answer that is being chosen, token by token."""

    choices: Choices
    place: tuple[int, int, int] = field(init=False)

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
