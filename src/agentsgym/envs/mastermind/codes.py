"""Codes and feedback, in words and as numbers; sets of codes as bit masks (bit i:
`CodeSpace.codes[i]`); which codes are for training.

A task is a code and its opening hints: other codes with the feedback that they would get. There are
few codes, so holding some out would only teach a model never to guess them (a code that is never
rewarded is always penalized). So every code is in training and in evaluation, but no (code, hints)
pair is in both; only without hints some codes are held out.
"""

import itertools
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agentsgym.envs.action_text import names_any, read_action, spoken
from agentsgym.envs.known_game import bit_mask
from agentsgym.types import session_seed

COLORS = ("red", "green", "blue", "yellow", "white", "black", "orange", "pink")
Code = tuple[int, ...]


class Feedback(NamedTuple):
    """`place` pegs have the right color in the right place, `color` more are only misplaced."""

    place: int
    color: int


Clues = tuple[tuple[Code, Feedback], ...]
"""Codes with the feedback that they received."""


def feedback(guess: Code, code: Code) -> Feedback:
    """The answer to a guess; symmetric in its arguments.

    place = Σ_i [guess_i = code_i]; place + color = Σ_c min(times c in guess, times c in code).
    """
    place = sum(g == c for g, c in zip(guess, code, strict=True))
    common = Counter(guess) & Counter(code)
    return Feedback(place, common.total() - place)


class CodeSpace:
    """All codes of `length` pegs in `colors` colors, repeats allowed, in lexicographic order."""

    def __init__(self, colors: int, length: int) -> None:
        self.colors = colors
        self.length = length
        self.codes: tuple[Code, ...] = tuple(itertools.product(range(colors), repeat=length))
        self.index = {code: i for i, code in enumerate(self.codes)}
        self.everything = (1 << len(self.codes)) - 1
        self._pegs = np.array(self.codes, dtype=np.int64)
        self._counts = np.stack([(self._pegs == c).sum(axis=1) for c in range(colors)], axis=1)
        self._parts: dict[int, dict[Feedback, int]] = {}

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def win(self) -> Feedback:
        """The feedback to the right guess."""
        return Feedback(self.length, 0)

    def parts(self, guess: int) -> dict[Feedback, int]:
        """For each feedback, the codes that would give it to guess number `guess`."""
        if guess not in self._parts:
            place = (self._pegs == self._pegs[guess]).sum(axis=1)
            common = np.minimum(self._counts, self._counts[guess]).sum(axis=1)
            key = place * (self.length + 1) + common - place
            self._parts[guess] = {
                Feedback(*divmod(answer, self.length + 1)): bit_mask(key == answer)
                for answer in np.unique(key).tolist()
            }
        return self._parts[guess]

    def split(self, candidates: int, guess: int) -> list[tuple[Feedback, int]]:
        """The non-empty parts of `candidates` after a guess, by feedback."""
        parts = ((answer, candidates & part) for answer, part in self.parts(guess).items())
        return [(answer, part) for answer, part in parts if part]

    def narrow(self, candidates: int, guess: Code, answer: Feedback) -> int:
        """The candidates that would give this feedback to `guess`."""
        return candidates & self.parts(self.index[guess]).get(answer, 0)


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


EVAL_SHARE = 5
"""One out of this many codes, or hint sets of a code, is held out for evaluation."""

Numbered = tuple[int, int]
"""(index of the code, seed of its hints)."""


def draw_hints(space: CodeSpace, solution: int, seed: int, count: int) -> tuple[Code, ...]:
    """`count` different codes other than the solution, sorted."""
    others = [code for i, code in enumerate(space.codes) if i != solution]
    rng = random.Random(f"mastermind-{solution}-{seed}")
    return tuple(sorted(rng.sample(others, min(count, len(others)))))


def split_by_codes(space: CodeSpace) -> tuple[list[Numbered], list[Numbered]]:
    """A fifth of the codes is for evaluation, the others for training."""
    shuffled = sorted(range(len(space)), key=lambda i: session_seed("mastermind-split", i))
    held_out = sorted(shuffled[: max(1, len(space) // EVAL_SHARE)])
    train = sorted(set(shuffled) - set(held_out))
    return [(code, 0) for code in train], [(code, 0) for code in held_out]


def split_by_hints(
    space: CodeSpace, hints: int, train_per_code: int, eval_per_code: int
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
    space: CodeSpace, code: int, hints: int, train_count: int, eval_count: int
) -> list[int]:
    """Seeds with different hint sets, as many as the split needs or as can be found."""
    count = max(EVAL_SHARE * eval_count, -(-train_count * EVAL_SHARE // (EVAL_SHARE - 1)) + 1)
    seen: dict[tuple[Code, ...], int] = {}
    for seed in range(20 * count):
        seen.setdefault(draw_hints(space, code, seed, hints), seed)
        if len(seen) == count:
            break
    return list(seen.values())
