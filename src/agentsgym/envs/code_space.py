"""Hidden codes and the feedback to guesses; sets of codes as bit masks (bit i:
`CodeSpace.codes[i]`); opening hints, and which codes are for training.

A task is a code and its opening hints: other codes with the feedback that they would get. Where
there are few codes, holding some out would only teach a model never to guess them (a code that is
never rewarded is always penalized). So every code is in training and in evaluation, but no
(code, hints) pair is in both; only without hints some codes are held out.
"""

import random
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from agentsgym.envs.known_game import bit_mask
from agentsgym.types import session_seed

Code = TypeVar("Code", bound=Hashable)
Answer = TypeVar("Answer", bound=Hashable)


class CodeSpace(Generic[Code, Answer]):
    """All codes that may be hidden; each may be guessed. `label` seeds their hints and split."""

    label: str
    win: Answer
    """The feedback to the right guess."""

    def __init__(self, codes: Sequence[Code]) -> None:
        self.codes = tuple(codes)
        self.index = {code: i for i, code in enumerate(self.codes)}
        self.everything = (1 << len(self.codes)) - 1
        self._parts: dict[int, dict[Answer, int]] = {}

    @abstractmethod
    def feedback(self, guess: Code, code: Code) -> Answer:
        """The feedback to a guess."""

    @abstractmethod
    def keys(self, guess: int) -> npt.NDArray[np.integer[Any]]:
        """The number of the feedback that each code would give to guess number `guess`."""

    @abstractmethod
    def answer(self, key: int) -> Answer:
        """The feedback of a number."""

    def __len__(self) -> int:
        return len(self.codes)

    def parts(self, guess: int) -> dict[Answer, int]:
        """For each feedback, the codes that would give it to guess number `guess`."""
        if guess not in self._parts:
            keys = self.keys(guess)
            self._parts[guess] = {
                self.answer(key): bit_mask(keys == key) for key in np.unique(keys).tolist()
            }
        return self._parts[guess]

    def split(self, candidates: int, guess: int) -> list[tuple[Answer, int]]:
        """The non-empty parts of `candidates` after a guess, by feedback."""
        parts = ((answer, candidates & part) for answer, part in self.parts(guess).items())
        return [(answer, part) for answer, part in parts if part]

    def narrow(self, candidates: int, guess: Code, answer: Answer) -> int:
        """The candidates that would give this feedback to `guess`."""
        return candidates & self.parts(self.index[guess]).get(answer, 0)


EVAL_SHARE = 5
"""One out of this many codes, or hint sets of a code, is held out for evaluation."""

Numbered = tuple[int, int]
"""(index of the code, seed of its hints)."""


def draw_hints(
    space: CodeSpace[Code, Answer], solution: int, seed: int, count: int
) -> tuple[Code, ...]:
    """`count` different codes other than the solution, in the order of the space."""
    others = [i for i in range(len(space)) if i != solution]
    rng = random.Random(f"{space.label}-{solution}-{seed}")
    return tuple(space.codes[i] for i in sorted(rng.sample(others, min(count, len(others)))))


def split_by_codes(space: CodeSpace[Any, Any]) -> tuple[list[Numbered], list[Numbered]]:
    """A fifth of the codes is for evaluation, the others for training."""
    shuffled = sorted(range(len(space)), key=lambda i: session_seed(f"{space.label}-split", i))
    held_out = sorted(shuffled[: max(1, len(space) // EVAL_SHARE)])
    train = sorted(set(shuffled) - set(held_out))
    return [(code, 0) for code in train], [(code, 0) for code in held_out]


def split_by_hints(
    space: CodeSpace[Any, Any], hints: int, train_per_code: int, eval_per_code: int
) -> tuple[list[Numbered], list[Numbered]]:
    """Of each code's different hint sets, every fifth is for evaluation, the others for training.

    A code with fewer sets than requested gets fewer tasks. Codes are interleaved.
    """
    train: list[tuple[int, Numbered]] = []
    held_out: list[tuple[int, Numbered]] = []
    for code in range(len(space)):
        seeds = _distinct_seeds(space, code, hints, train_per_code, eval_per_code)
        own = [seed for number, seed in enumerate(seeds) if number % EVAL_SHARE != 1]
        train += [(turn, (code, seed)) for turn, seed in enumerate(own[:train_per_code])]
        held_out += [
            (turn, (code, seed)) for turn, seed in enumerate(seeds[1::EVAL_SHARE][:eval_per_code])
        ]
    return [task for _, task in sorted(train)], [task for _, task in sorted(held_out)]


def _distinct_seeds(
    space: CodeSpace[Any, Any], code: int, hints: int, train_count: int, eval_count: int
) -> list[int]:
    """Seeds with different hint sets, as many as the split needs or as can be found."""
    count = max(EVAL_SHARE * eval_count, -(-train_count * EVAL_SHARE // (EVAL_SHARE - 1)) + 1)
    seen: dict[tuple[Any, ...], int] = {}
    for seed in range(20 * count):
        seen.setdefault(draw_hints(space, code, seed, hints), seed)
        if len(seen) == count:
            break
    return list(seen.values())
