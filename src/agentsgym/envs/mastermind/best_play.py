"""Trials of Mastermind as numbers: their rewards, and exact best play.

Ties go to a guess that may be the code itself, then to the earlier code, so play is deterministic.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentsgym.envs.known_game import episode_weights, lowest
from agentsgym.envs.mastermind.codes import CodeSpace, Feedback

MAX_EXACT_CODES = 64
_TIE = 1e-12
_HURRY = 1e-9


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """A trial with one code, in which the player remembers its earlier episodes.

    Each of `episodes` has at most `steps` guesses and ends with the right one. The score is the
    share of episodes after the first `free_shots` that are won.
    """

    steps: int
    episodes: int = 1
    free_shots: int = 0

    def weight(self, episode: int) -> float:
        """The share of an episode's reward in the score."""
        return episode_weights(self.episodes, self.free_shots)[episode]


class ExactPlayer:
    """Maximizes the expected score of the whole trial, by dynamic programming over candidate sets.

    V(S, e, k), summed over the codes in S with k guesses left in episode e of weight w, is the
    maximum over guesses g of [g ∈ S]·(w + K(e+1)) + Σ_f V(S_f, e, k−1), where f runs over the other
    answers, V(S, e, 0) = V(S, e+1, steps), and K(e) is the score of a player who knows the code
    from episode e on. Among plays with equal scores it prefers fewer guesses (by a price of 1e-9
    per guess). Bounds prune the search. Raises ValueError above `MAX_EXACT_CODES` codes.
    """

    def __init__(self, space: CodeSpace, plan: TrialPlan) -> None:
        if len(space) > MAX_EXACT_CODES:
            raise ValueError(
                f"exact play allows at most {MAX_EXACT_CODES} codes, there are {len(space)}"
            )
        self._space = space
        self._plan = plan
        self._wins = [plan.weight(episode) for episode in range(plan.episodes)]
        self._known = [
            sum(self._wins[e:]) - _HURRY * (plan.episodes - e) for e in range(plan.episodes + 1)
        ]
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
        for guess in _possible_first(self._space, candidates):
            parts = self._space.split(candidates, guess)
            shape = tuple(sorted((part, answer == self._space.win) for answer, part in parts))
            if shape in seen or (len(parts) == 1 and parts[0][0] != self._space.win):
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
            if answer == self._space.win:
                value += self._wins[episode] + self._known[episode + 1]
            elif left > 1:
                following.append((part, episode, left - 1))
            elif episode + 1 < self._plan.episodes:
                following.append((part, episode + 1, self._plan.steps))
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
            total += solved * (self._wins[episode] - _HURRY * guesses + later)
            rest, parts = rest - solved, parts * (self._most_parts - 1)
        return total + rest * (later - _HURRY * left)


def _possible_first(space: CodeSpace, candidates: int) -> Iterator[int]:
    """Guesses that may be right, then the others."""
    if candidates.bit_count() == 1:
        yield lowest(candidates)
        return
    yield from (guess for guess in range(len(space)) if candidates >> guess & 1)
    yield from (guess for guess in range(len(space)) if not candidates >> guess & 1)
