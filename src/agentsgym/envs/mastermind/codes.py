"""Mastermind's codes and feedback, in words and as numbers."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agentsgym.envs.action_text import names_any, read_action, spoken
from agentsgym.envs.code_space import CodeSpace

COLORS = ("red", "green", "blue", "yellow", "white", "black", "orange", "pink")
Code = tuple[int, ...]


class Feedback(NamedTuple):
    """`place` pegs have the right color in the right place, `color` more are only misplaced."""

    place: int
    color: int


def feedback(guess: Code, code: Code) -> Feedback:
    """The answer to a guess; symmetric in its arguments.

    place = Σ_i [guess_i = code_i]; place + color = Σ_c min(times c in guess, times c in code).
    """
    place = sum(g == c for g, c in zip(guess, code, strict=True))
    common = Counter(guess) & Counter(code)
    return Feedback(place, common.total() - place)


class PegCodes(CodeSpace[Code, Feedback]):
    """All codes of `length` pegs in `colors` colors, repeats allowed, in lexicographic order."""

    label = "mastermind"

    def __init__(self, colors: int, length: int) -> None:
        super().__init__(tuple(itertools.product(range(colors), repeat=length)))
        self.colors = colors
        self.length = length
        self.win = Feedback(length, 0)
        self._pegs = np.array(self.codes, dtype=np.int64)
        self._counts = np.stack([(self._pegs == c).sum(axis=1) for c in range(colors)], axis=1)

    def feedback(self, guess: Code, code: Code) -> Feedback:
        """The pegs in place, and those only misplaced."""
        return feedback(guess, code)

    def keys(self, guess: int) -> npt.NDArray[np.int64]:
        """place · (length + 1) + color of each code's feedback."""
        place = (self._pegs == self._pegs[guess]).sum(axis=1)
        common = np.minimum(self._counts, self._counts[guess]).sum(axis=1)
        return np.asarray(place * (self.length + 1) + common - place)

    def answer(self, key: int) -> Feedback:
        """The feedback of a number."""
        return Feedback(*divmod(key, self.length + 1))


def say_code(code: Code, names: Sequence[str]) -> str:
    """A code as words: "red blue"."""
    return " ".join(names[color] for color in code)


def read_code(text: str, names: Sequence[str], length: int) -> Code | None:
    """The code in a text, after any thoughts and in any case; None for anything else."""
    words = re.split(r"[\s,]+", spoken(text).strip(" \n\t.,!\"'[]").lower())
    if len(words) != length or any(word not in names for word in words):
        return None
    return tuple(names.index(word) for word in words)


def read_guess(action: str, names: Sequence[str], length: int) -> Code | None:
    """The one code in an agent's text (see `read_action`); None for anything else."""
    return read_action(
        action, lambda text: read_code(text, names, length), lambda text: names_any(text, names)
    )


def say_feedback(answer: Feedback) -> str:
    """Feedback as words: "1 right place, 0 right colour."."""
    return f"{answer.place} right place, {answer.color} right colour."
