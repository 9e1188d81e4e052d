"""The order in which groups are played that are drawn by their number."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Submitted:
    """What has been submitted: all generations before `generations`; of their groups those in
    `open` have not been in a batch."""

    generations: int
    open: tuple[int, ...] = ()

    def may_be_at(self, step: int, groups: int) -> bool:
        """Whether a run with generations of `groups` groups can have submitted this when it had
        made `step` optimizer steps: each batch is used for one at least."""
        return 0 <= self.generations - len(self.open) // groups <= step


class GroupOrder:
    """The groups that are still to be played: those that were open in `submitted`, then generation
    by generation. Groups are numbered over all generations; `groups_of` gives those of one."""

    def __init__(self, submitted: Submitted, groups_of: Callable[[int], Iterable[int]]) -> None:
        self._open = deque(submitted.open)
        self._next = submitted.generations
        self._groups_of = groups_of

    def take(self, size: int) -> list[int]:
        """The numbers of the next `size` groups."""
        while len(self._open) < size:
            self._open.extend(self._groups_of(self._next))
            self._next += 1
        return [self._open.popleft() for _ in range(size)]

    def left(self, taken: Iterable[int] = ()) -> Submitted:
        """What a run that continues here has to play, with `taken` groups before all others."""
        return Submitted(self._next, (*taken, *self._open))
