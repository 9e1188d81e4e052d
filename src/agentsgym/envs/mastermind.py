"""Mastermind: its codes and feedback, in words and as numbers, and its exact best play, in which
ties go to a guess that may be the code itself, then to the earlier code, so it is deterministic.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from agentsgym.envs.action_text import names_any, spoken
from agentsgym.envs.code_game import CodeGame, CodeSpace, CodeState
from agentsgym.envs.known_game import lowest
from agentsgym.types.names import ConfigError

COLORS = ("red", "green", "blue", "yellow", "white", "black", "orange", "pink")
Code = tuple[int, ...]


class Feedback(NamedTuple):
    """`place` pegs have the right color in the right place, `color` more are only misplaced."""

    place: int
    color: int


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

    @staticmethod
    def feedback(guess: Code, code: Code) -> Feedback:
        """The answer to a guess; symmetric in its arguments.

        place = Σ_i [guess_i = code_i]; place + color = Σ_c min(times c in guess, times c in code).
        """
        place = sum(g == c for g, c in zip(guess, code, strict=True))
        common = Counter(guess) & Counter(code)
        return Feedback(place, common.total() - place)

    def keys(self, guess: int) -> npt.NDArray[np.int64]:
        """place · (length + 1) + color of each code's feedback."""
        place = (self._pegs == self._pegs[guess]).sum(axis=1)
        common = np.minimum(self._counts, self._counts[guess]).sum(axis=1)
        return np.asarray(place * (self.length + 1) + common - place)

    def answer(self, key: int) -> Feedback:
        return Feedback(*divmod(key, self.length + 1))


# -- exact best play -------------------------------------------------------------------------------


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


# -- the environment -------------------------------------------------------------------------------


MAX_CODES = 1296


class MastermindEnv(CodeGame):
    """Find a code of colored pegs. Each guess gets the number of right and of misplaced pegs.

    `task_data` is `{"solution": "red blue", "seed": int}`; the opening hints are drawn from the
    seed. The right guess earns 1.0 and ends the episode. In a trial the code and the hints stay the
    same.
    """

    class Settings(CodeGame.Settings):
        """The settings of Mastermind."""

        max_steps_per_episode: int = Field(3, description="guesses per episode")
        colors: int = Field(4, ge=2, le=len(COLORS), description="number of colors")
        length: int = Field(2, ge=1, le=10, description="pegs of a code")

    config: Settings
    reflect = "Note what you know about the code."
    refusal = "That is no code."

    def _set_up(self) -> None:
        config = self.config
        if config.colors**config.length > MAX_CODES:
            raise ConfigError(
                f"{self.name}: env_config.length gives more than {MAX_CODES} codes, got "
                f"{config.length}"
            )
        self.color_names = COLORS[: config.colors]
        self.solution_form = f"of {config.length} words out of {', '.join(self.color_names)}"
        self.pegs = PegCodes(config.colors, config.length)
        self.play_in(self.pegs)
        # It does not say "code": small models then write a program.
        self.form = f"Answer with {config.length} color{'s' if config.length > 1 else ''} only."

    def rules(self, state: CodeState) -> str:
        names, explained = self.color_names, self.config.explain_actions
        rules = f"Find the code: {self.config.length} of {', '.join(names)}, repeats allowed. "
        rules += "" if explained else f'Guess like "{self.example_action(state)}". '
        return f"{rules}{self.config.max_steps_per_episode} guesses."

    def read_code(self, text: str) -> Code | None:
        """The code in a text, after any thoughts and in any case; None for anything else."""
        words = re.split(r"[\s,]+", spoken(text).strip(" \n\t.,!\"'[]").lower())
        if len(words) != self.config.length or any(word not in self.color_names for word in words):
            return None
        return tuple(self.color_names.index(word) for word in words)

    def names_code(self, text: str) -> bool:
        return names_any(text, self.color_names)

    def say_code(self, code: Code) -> str:
        """A code as words: "red blue"."""
        return " ".join(self.color_names[color] for color in code)

    def say_answer(self, answer: Feedback) -> str:
        """Feedback as words: "1 right place, 0 right colour."."""
        return f"{answer.place} right place, {answer.color} right colour."

    @cached_property
    def best_play(self) -> ExactPlayer:
        return ExactPlayer(self.pegs, self.config.max_steps_per_episode, self.shares)

    def example_action(self, state: CodeState) -> str:
        """The first color, then the second one in all other places."""
        return self.say_code((0, *[1] * (self.config.length - 1)))
