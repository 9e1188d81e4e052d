"""The words of Wordle, and the feedback to a guess.

A feedback is a text with a mark for each letter of the guess: G if the letter is in its place, else
Y if the solution has one that no other letter of the guess accounts for, else X. Letters in their
places come first, then the others from left to right.
"""

from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from agentsgym.envs.code_space import CodeSpace

LENGTH = 5
MARKS = "XYG"


def feedback(guess: str, solution: str) -> str:
    """The marks of a guess; both words have five letters."""
    rest = Counter(s for g, s in zip(guess, solution, strict=True) if g != s)
    marks = []
    for g, s in zip(guess, solution, strict=True):
        mark = "G" if g == s else "Y" if rest[g] else "X"
        rest[g] -= mark == "Y"
        marks.append(mark)
    return "".join(marks)


class WordSpace(CodeSpace[str, str]):
    """Words of five letters from a to z."""

    label = "wordle"
    win = "G" * LENGTH

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__(words)
        self._letters = np.array([[ord(c) - ord("a") for c in word] for word in words])
        alphabet = np.arange(26)
        self._counts = (self._letters[:, :, None] == alphabet).sum(axis=1)

    def feedback(self, guess: str, code: str) -> str:
        """The marks of a guess."""
        return feedback(guess, code)

    def keys(self, guess: int) -> npt.NDArray[np.int64]:
        """The marks of each word's feedback as digits to the base 3, the first one highest."""
        letters = self._letters[guess]
        same = self._letters == letters
        rest = self._counts.copy()
        for place, letter in enumerate(letters):
            rest[:, letter] -= same[:, place]
        keys = np.zeros(len(self), dtype=np.int64)
        for place, letter in enumerate(letters):
            misplaced = ~same[:, place] & (rest[:, letter] > 0)
            rest[:, letter] -= misplaced
            keys = 3 * keys + 2 * same[:, place] + misplaced
        return keys

    def answer(self, key: int) -> str:
        """The marks of a number."""
        return "".join(MARKS[key // 3**place % 3] for place in reversed(range(LENGTH)))


@lru_cache(maxsize=1)
def all_words() -> WordSpace:
    """The words that come with the package."""
    text = (Path(__file__).parent / "data" / "words.txt").read_text(encoding="ascii")
    return WordSpace(tuple(text.split()))
