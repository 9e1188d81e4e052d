"""How the rows of a forward pass lie in the model's input: padded to one length, or with every
common prefix once (`forest.py`)."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike

from agentsgym.training.loss.batch import TrainRow
from agentsgym.types.rows import Ints


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


class PaddedRows:
    """B rows padded on the right to a common length T."""

    def __init__(self, rows: Sequence[TrainRow], pad_token_id: int) -> None:
        self.rows = rows
        self._pad_token_id = pad_token_id
        self._length = max(row.length for row in rows)

    @property
    def size(self) -> int:
        """Tokens that the model reads, padding included."""
        return len(self.rows) * self._length

    @property
    def tokens(self) -> int:
        """Tokens that the model reads, padding left out."""
        return sum(row.length for row in self.rows)

    def inputs(self, device: torch.device) -> dict[str, Any]:
        """`input_ids` and `attention_mask`, int64, shape (B, T)."""
        ids = padded(
            [row.token_ids for row in self.rows], self._length, self._pad_token_id, np.int64
        )
        lengths = np.array([row.length for row in self.rows])
        mask = np.arange(self._length) < lengths[:, None]
        input_ids, attention_mask = torch.from_numpy(np.stack((ids, mask))).to(device).unbind()
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def index(self, row: Ints, position: Ints) -> Ints:
        """Where tokens stand among the B·T."""
        return row * self._length + position


def padded(
    values: Sequence[ArrayLike], length: int, fill: float, dtype: type[np.generic]
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Rows of the given length, filled up on the right."""
    result = np.full((len(values), length), fill, dtype=dtype)
    for i, row in enumerate(map(np.asarray, values)):
        result[i, : len(row)] = row
    return result
