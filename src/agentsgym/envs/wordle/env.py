"""Wordle with a free list of words.

A feedback is a text with a mark for each letter of the guess: G if the letter is in its place, else
Y if the solution has one that no other letter of the guess accounts for, else X. Letters in their
places come first, then the others from left to right.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field

from agentsgym.envs.code_game import CodeGame, CodeSpace, CodeState
from agentsgym.envs.known_game import members

LENGTH = 5
MARKS = "XYG"


class WordSpace(CodeSpace[str, str]):
    """Words of five letters from a to z."""

    label = "wordle"
    win = "G" * LENGTH

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__(words)
        self._letters = np.array([[ord(c) - ord("a") for c in word] for word in words])
        alphabet = np.arange(26)
        self._counts = (self._letters[:, :, None] == alphabet).sum(axis=1)

    @staticmethod
    def feedback(guess: str, code: str) -> str:
        rest = Counter(c for g, c in zip(guess, code, strict=True) if g != c)
        marks = []
        for g, c in zip(guess, code, strict=True):
            mark = "G" if g == c else "Y" if rest[g] else "X"
            rest[g] -= mark == "Y"
            marks.append(mark)
        return "".join(marks)

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
        return "".join(MARKS[key // 3**place % 3] for place in reversed(range(LENGTH)))


@lru_cache(maxsize=1)
def all_words() -> WordSpace:
    """The words that come with the package."""
    text = (Path(__file__).parent / "data" / "words.txt").read_text(encoding="ascii")
    return WordSpace(tuple(text.split()))


# -- a strong player -------------------------------------------------------------------------------


_KEYS = len(MARKS) ** LENGTH
_PREFERRED = 1e-9


class EntropyPlayer:
    """Guesses the word whose feedback tells most.

    That is the word g with the largest entropy of the feedback, H(g) = −Σ_f p_f log₂ p_f, where p_f
    is the share of the possible solutions that would give feedback f. Of equal ones it takes a
    possible solution, then the earlier word. With the last guess of an episode that counts
    (`weights[episode]` > 0) it only guesses possible solutions. It plans no further, so it is
    strong, and not proved to be optimal. In a trial it knows what earlier episodes told.
    """

    def __init__(self, space: WordSpace, weights: Sequence[float] = (1.0,)) -> None:
        self.space = space
        self.weights = tuple(weights)
        self._chosen: dict[tuple[int, bool], int] = {}

    def choose(self, candidates: int, episode: int, left: int) -> int:
        """Index of the guess if these words are still possible, with `left` guesses left in the
        episode, including this one."""
        key = candidates, left == 1 and self.weights[episode] > 0
        if key not in self._chosen:
            self._chosen[key] = self._search(*key)
        return self._chosen[key]

    def entropies(self, candidates: int) -> npt.NDArray[np.float64]:
        """H of each word in bits, shape (words,), if these are possible."""
        keys = self._keys[:, members(candidates)]
        words, count = keys.shape
        flat = (keys + _KEYS * np.arange(words)[:, None]).ravel()
        shares = np.bincount(flat, minlength=words * _KEYS).reshape(words, _KEYS) / count
        logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
        return np.asarray(-(shares * logs).sum(axis=1))

    def _search(self, candidates: int, last: bool) -> int:
        possible = np.zeros(len(self.space))
        possible[members(candidates)] = 1.0
        value = self.entropies(candidates).round(9) + _PREFERRED / 2 * possible
        return int(np.argmax(np.where(possible, value, -1.0) if last else value))

    @cached_property
    def _keys(self) -> npt.NDArray[np.int64]:
        return np.stack([self.space.keys(guess) for guess in range(len(self.space))])


# -- the environment -------------------------------------------------------------------------------


_LETTERS = re.compile(r"[^\W\d_]+")


class WordleEnv(CodeGame):
    """Find a word of five letters. Each guess, a word of the list, gets a mark for each letter.

    `task_data` is `{"solution": "crane", "seed": int}`; opening hints, if there are any, are drawn
    from the seed. The right guess earns 1.0 and ends the episode. In a trial the word stays the
    same.
    """

    class Settings(CodeGame.Settings):
        """The settings of Wordle."""

        max_steps_per_episode: int = Field(6, description="guesses per episode")
        hints: int = Field(0, ge=0, le=100, description="opening hints in the first prompt")

    config: Settings
    what = "word"
    reflect = "Note what you know about the word."
    refusal = "That is not in the list of words."
    form = "Answer with one word only."
    solution_form = "from the list of words"

    def _set_up(self) -> None:
        self.words = all_words()
        self.play_in(self.words)

    def rules(self, state: CodeState) -> str:
        guesses = self.config.max_steps_per_episode
        return (
            f"Find the common English word of {LENGTH} letters. {guesses} guesses. After a guess, "
            "each of its letters has a mark: G if it is in its place, Y if it belongs to another "
            "place, X if the word has no more of it."
        )

    def read_code(self, text: str) -> str | None:
        word = text.strip().casefold()
        return word if word in self.words.index else None

    def names_code(self, text: str) -> bool:
        return any(word in self.words.index for word in _LETTERS.findall(text.casefold()))

    def say_code(self, code: str) -> str:
        return code

    def say_answer(self, answer: str) -> str:
        return " ".join(answer)

    @cached_property
    def best_play(self) -> EntropyPlayer:
        return EntropyPlayer(self.words, self.shares)
