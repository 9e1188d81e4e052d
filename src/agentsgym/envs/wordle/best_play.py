"""A strong player of Wordle: it looks one guess ahead."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from agentsgym.envs.known_game import members
from agentsgym.envs.wordle.words import LENGTH, MARKS, WordSpace

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

    def __init__(self, space: WordSpace, steps: int, weights: Sequence[float] = (1.0,)) -> None:
        self.space = space
        self.steps = steps
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
