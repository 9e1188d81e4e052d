"""Trials of Mastermind as numbers: their rewards, and exact best play.

Ties go to a guess that may be the code itself, then to the earlier code, so play is deterministic.
"""

import math
from collections.abc import Iterator, Sequence

from agentsgym.envs.known_game import lowest
from agentsgym.envs.mastermind.codes import Feedback, PegCodes

MAX_EXACT_CODES = 64
_TIE = 1e-12
_HURRY = 1e-9


class ExactPlayer:
    """Maximizes the expected score of the whole trial, by dynamic programming over candidate sets.

    An episode has at most `steps` guesses and ends with the right one, which earns its share of the
    score, `weights[episode]`. The code stays the same, and the player remembers earlier episodes.

    V(S, e, k), summed over the codes in S with k guesses left in episode e of weight w, is the
    maximum over guesses g of [g ∈ S]·(w + K(e+1)) + Σ_f V(S_f, e, k−1), where f runs over the other
    answers, V(S, e, 0) = V(S, e+1, steps), and K(e) is the score of a player who knows the code
    from episode e on. Among plays with equal scores it prefers fewer guesses (by a price of 1e-9
    per guess). Bounds prune the search. Raises ValueError above `MAX_EXACT_CODES` codes.
    """

    def __init__(self, space: PegCodes, steps: int, weights: Sequence[float] = (1.0,)) -> None:
        if len(space) > MAX_EXACT_CODES:
            raise ValueError(
                f"exact play allows at most {MAX_EXACT_CODES} codes, there are {len(space)}"
            )
        self.space = space
        self.steps = steps
        self.weights = tuple(weights)
        episodes = len(weights)
        self._known = [sum(weights[e:]) - _HURRY * (episodes - e) for e in range(episodes + 1)]
        self._most_parts = max(len(space.parts(guess)) for guess in range(len(space)))
        self._solved: dict[tuple[int, int, int], tuple[float, int]] = {}

    def choose(self, candidates: int, episode: int, left: int) -> int:
        """Index of the guess if these codes are still possible, with `left` guesses left in the
        episode, including this one."""
        return self._solve(candidates, episode, left)[1]

    def _solve(self, candidates: int, episode: int, left: int) -> tuple[float, int]:
        """(value summed over the candidates, best guess)."""
        key = (candidates, episode, left)
        if key not in self._solved:
            self._solved[key] = self._search(*key)
        return self._solved[key]

    def _search(self, candidates: int, episode: int, left: int) -> tuple[float, int]:
        ceiling = self._bound(candidates.bit_count(), episode, left)
        best, highest = lowest(candidates), -math.inf
        seen = set()
        for guess in _possible_first(self.space, candidates):
            parts = self.space.split(candidates, guess)
            shape = tuple(sorted((part, answer == self.space.win) for answer, part in parts))
            if shape in seen or (len(parts) == 1 and parts[0][0] != self.space.win):
                continue
            seen.add(shape)
            value = self._guess_value(parts, episode, left, highest)
            if value > highest + _TIE:
                best, highest = guess, value
            if highest >= ceiling - _TIE:
                break
        return highest, best

    def _guess_value(
        self, parts: Sequence[tuple[Feedback, int]], episode: int, left: int, to_beat: float
    ) -> float:
        """A guess's value, or anything below `to_beat` if it cannot reach `to_beat`."""
        value = -_HURRY * sum(part.bit_count() for _, part in parts)
        following = []
        for answer, part in parts:
            if answer == self.space.win:
                value += self.weights[episode] + self._known[episode + 1]
            elif left > 1:
                following.append((part, episode, left - 1))
            elif episode + 1 < len(self.weights):
                following.append((part, episode + 1, self.steps))
        hopes = [self._bound(part.bit_count(), e, k) for part, e, k in following]
        hope = value + sum(hopes)
        for place, bound in zip(following, hopes, strict=True):
            if hope <= to_beat + _TIE:
                break
            hope += self._solve(*place)[0] - bound
        return hope

    def _bound(self, count: int, episode: int, left: int) -> float:
        """An upper bound for `count` candidates: one can be right at once, and each feedback leads
        to one more that is right at the next guess."""
        later = self._known[episode + 1]
        total, parts, rest = 0.0, 1, count
        for guesses in range(1, left + 1):
            solved = min(parts, rest)
            total += solved * (self.weights[episode] - _HURRY * guesses + later)
            rest, parts = rest - solved, parts * (self._most_parts - 1)
        return total + rest * (later - _HURRY * left)


def _possible_first(space: PegCodes, candidates: int) -> Iterator[int]:
    """Guesses that may be right, then the others."""
    if candidates.bit_count() == 1:
        yield lowest(candidates)
        return
    yield from (guess for guess in range(len(space)) if candidates >> guess & 1)
    yield from (guess for guess in range(len(space)) if not candidates >> guess & 1)
