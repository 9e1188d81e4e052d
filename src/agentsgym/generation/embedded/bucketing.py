"""Groups rows for attention, so that short rows do not read as far as the longest.

Rows that attend in one call all read as many keys as the longest of them. Splitting between
neighbors costs nothing; rows sorted by length need few calls and waste little.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

# Minimum saving of one more attention call, in keys read by a row: 2,048 keys and values of 128
# float32 numbers are 2 MB, and reading them takes about as long as starting a few calls.
_WORTH_A_CALL = 2048
_FEWEST_ROWS = 4


def parts(lengths: Ints) -> list[slice]:
    """Runs of neighbors that should attend together, in order, for rows of `lengths` [n]."""
    found: list[slice] = []
    _halve(lengths, 0, len(lengths), found)
    return found


def keys_read(lengths: Ints) -> int:
    """Keys that rows of `lengths` [n] read when they attend in `parts(lengths)`."""
    return sum(_cost(lengths[part]) for part in parts(lengths))


def _halve(lengths: Ints, start: int, stop: int, found: list[slice]) -> None:
    middle = (start + stop) // 2
    if stop - start >= 2 * _FEWEST_ROWS:
        halves = _cost(lengths[start:middle]) + _cost(lengths[middle:stop])
        if _cost(lengths[start:stop]) - halves >= _WORTH_A_CALL:
            _halve(lengths, start, middle, found)
            _halve(lengths, middle, stop, found)
            return
    if stop > start:
        found.append(slice(start, stop))


def _cost(lengths: Ints) -> int:
    return len(lengths) * int(lengths.max(initial=0))
