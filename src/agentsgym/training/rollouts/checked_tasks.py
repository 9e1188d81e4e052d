"""A training set that is too large to check all its rows before training."""

import logging
from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset

from agentsgym.envs import ConfigError

logger = logging.getLogger(__name__)


class CheckedTasks(Dataset[Any]):
    """The rows of a set with numbers, each checked by `problem` when it is drawn.

    In the place of a bad row, for which `problem` returns a text, stands the next good one, so
    every process finds the same row under a number. More than `most_bad` bad rows raise
    ConfigError.
    """

    def __init__(self, rows: Any, problem: Callable[[Any], str | None], most_bad: int) -> None:
        self._rows = rows
        self._problem = problem
        self._most_bad = most_bad
        self._found: set[int] = set()
        self._last: tuple[int, Any] = (-1, None)

    @property
    def bad(self) -> int:
        """Number of bad rows drawn so far, in this process."""
        return len(self._found)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Any:
        if self._last[0] != number:  # a group draws its row many times, one after another
            self._last = (number, self._good_row(number))
        return self._last[1]

    def _good_row(self, number: int) -> Any:
        for offset in range(len(self)):
            place = (number + offset) % len(self)
            row = self._rows[place]
            problem = self._problem(row)
            if problem is None:
                return row
            self._note(place, problem)
        raise ConfigError("train_dataset: no row is good")

    def _note(self, place: int, problem: str) -> None:
        if place in self._found:
            return
        self._found.add(place)
        text = f"train_dataset: row {place} is bad: {problem}"
        if self.bad > self._most_bad:
            raise ConfigError(f"{text}; that is more than max_bad_rows={self._most_bad}")
        logger.warning("%s; the next good row takes its place", text)
