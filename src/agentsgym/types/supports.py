"""What sampled tokens were chosen from, where that is not the whole vocabulary."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
_NONE = np.zeros(0, np.int32)
_END = -1
_LACKS = -2


@dataclass(frozen=True, slots=True, eq=False)
class Supports:
    """The ids that M tokens of a sequence were chosen from; its other tokens were chosen from the
    whole vocabulary, or not at all.

    All int32: `at` (M,), ascending, has the places of these tokens; the ids of the k-th are those
    of `ids` (K,) from `ends[k - 1]` to before `ends[k]` (M,), ascending. A `wide` support has in
    their place what it lacks (`compact`), and none if it is that of the token before. A token that
    was chosen from one id was no choice: it is `forced`, and mere context for what is learned.
    Where an answer was chosen as a whole, its first token stands for it, with whole answers in
    place of ids, each with -1 after it, and its other tokens are forced.

    Raises ValueError for arrays that do not fit together.
    """

    at: Ids = field(default_factory=lambda: _NONE)
    ends: Ids = field(default_factory=lambda: _NONE)
    ids: Ids = field(default_factory=lambda: _NONE)

    def __post_init__(self) -> None:
        for name in Supports.__slots__:
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int32))
        sizes, total = self.sizes, int(self.ends[-1]) if len(self.ends) else 0
        divided = len(self.at) == len(self.ends) and total == len(self.ids)
        if not divided or (sizes < 0).any() or (sizes[:1] < 1).any() or self._repeats_narrow():
            raise ValueError("the ends of supports do not divide their ids")
        if (np.diff(self.at) < 1).any() or (self.at[:1] < 0).any():
            raise ValueError("the places of supports are not ascending")

    @classmethod
    def of(cls, sets: Iterable[tuple[int, Sequence[int] | Ids]]) -> Self:
        """Places, ascending, with their ids, ascending or `compact`."""
        places, ids, before = [], [], _NONE
        for place, own in sets:
            own = np.asarray(own, np.int32)
            places.append(place)
            ids.append(_NONE if is_wide(own) and np.array_equal(own, before) else own)
            before = own
        if not places:
            return cls()
        ends = np.cumsum([len(own) for own in ids]).astype(np.int32)
        return cls(np.array(places, np.int32), ends, np.concatenate(ids))

    def __iter__(self) -> Iterator[tuple[int, Ids]]:
        """Each place with its ids, which may be `compact`."""
        edges, own = [0, *self.ends.tolist()], _NONE
        for place, (start, stop) in zip(self.at.tolist(), pairwise(edges), strict=True):
            own = self.ids[start:stop] if stop > start else own
            yield place, own

    def __len__(self) -> int:
        return len(self.at)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Supports):
            return NotImplemented
        return all(np.array_equal(getattr(self, n), getattr(other, n)) for n in Supports.__slots__)

    def __hash__(self) -> int:
        return hash((self.at.tobytes(), self.ids.tobytes()))

    @property
    def sizes(self) -> Ids:
        """The number of entries in `ids` of each, (M,)."""
        return np.diff(self.ends, prepend=np.int32(0))

    @property
    def whole(self) -> bool:
        """Whether some answer was chosen as a whole."""
        return bool((self.ids == _END).any())

    @property
    def forced(self) -> Ids:
        """The places of tokens that were no choice."""
        places: Ids = self.at[(self.sizes == 1) & (self.ids[self.ends - 1] > _END)]
        return places

    def wide(self) -> Iterator[tuple[Ids, Ids]]:
        """Each wide support once, `compact`, after the places of the tokens with it."""
        for first, last in pairwise([*np.flatnonzero(self.sizes).tolist(), len(self.at)]):
            ids = self.ids[self.ends[first] - self.sizes[first] : self.ends[first]]
            if is_wide(ids):
                yield self.at[first:last], ids

    def _repeats_narrow(self) -> bool:
        """Whether a token that has no ids of its own follows one that is not wide."""
        again = self.ends[self.sizes == 0]
        return bool((self.ids[again - 1] >= _END).any())

    def between(self, start: int, stop: int, shift: int = 0) -> "Supports":
        """Those of the tokens from `start` to before `stop`, counted from there and moved on by
        `shift`."""
        first, last = np.searchsorted(self.at, (start, stop)).tolist()
        if first == last:
            return NO_SUPPORTS
        own = first - int(np.argmax(self.sizes[first::-1] > 0))  # it may repeat an earlier one
        begin = int(self.ends[own - 1]) if own else 0
        ends = self.ends[first:last]
        ids = self.ids[begin : int(ends[-1])]
        return Supports(self.at[first:last] - start + shift, ends - begin, ids)

    def fits(self, token_ids: NDArray[Any]) -> bool:
        """Whether each token of this sequence is among the ids that it was chosen from."""
        if not len(self):
            return True
        if self.at[-1] >= len(token_ids) or (self.whole and not self._answers_fit(token_ids)):
            return False
        own = np.flatnonzero(self.sizes)
        chosen = np.repeat(token_ids[self.at], self.sizes) == self.ids
        found = np.logical_or.reduceat(chosen, (self.ends - self.sizes)[own])
        if not found[self.ids[self.ends[own] - 1] >= _END].all():
            return False
        tokens = ((token_ids[places], ids) for places, ids in self.wide())
        return all(
            (t < _LACKS - i[-1]).all() and not np.isin(_LACKS - t, i).any() for t, i in tokens
        )

    def _answers_fit(self, token_ids: NDArray[Any]) -> bool:
        """Whether each answer that was chosen as a whole is among those that there were."""
        for place, ids in self:
            if ids[-1] == _END:
                parts = np.split(ids, np.flatnonzero(ids < 0) + 1)[:-1]
                own = (token_ids[place : place + len(part) - 1] for part in parts)
                if not any(map(np.array_equal, own, (part[:-1] for part in parts))):
                    return False
        return True


def compact(allowed: NDArray[np.bool_]) -> Ids:
    """The ids at which `allowed` (V,), which is true somewhere, is true, ascending; or, if these
    are fewer, those at which it is not, each as -2 - id, up to the first of those after the last
    that is, which stands for all of them."""
    ids = np.flatnonzero(allowed)
    stop = int(ids[-1]) + 1
    if 2 * len(ids) <= stop + 1:
        return ids.astype(np.int32)
    outside = np.append(np.flatnonzero(~allowed[:stop]), stop)
    return (_LACKS - outside).astype(np.int32)


def is_wide(ids: Ids) -> bool:
    """Whether ids are those that a support lacks."""
    return bool(len(ids) and ids[-1] < _END)


def mask_of(ids: Ids, size: int) -> NDArray[np.bool_]:
    """Which of the first `size` ids are among these, which may be `compact`; shape (size,)."""
    if not is_wide(ids):
        mask = np.zeros(size, np.bool_)
        mask[ids] = True
        return mask
    outside = _LACKS - ids
    mask = np.ones(size, np.bool_)
    mask[outside[outside < size]] = False
    mask[outside[-1] :] = False
    return mask


NO_SUPPORTS = Supports()
"""Those of a sequence whose tokens were all chosen from the whole vocabulary."""


def joined_supports(parts: Iterable[Supports]) -> Supports:
    """Parts of one sequence, whose places ascend, as one."""
    some = [part for part in parts if len(part)]
    if len(some) < 2:
        return some[0] if some else NO_SUPPORTS
    offsets = np.cumsum([0, *(len(part.ids) for part in some[:-1])])
    ends = [part.ends + offset for part, offset in zip(some, offsets, strict=True)]
    columns = [part.at for part in some], ends, [part.ids for part in some]
    return Supports(*(np.concatenate(column) for column in columns))
