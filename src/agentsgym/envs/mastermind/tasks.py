"""Splits Mastermind tasks into training and evaluation: disjoint and deterministic.

A task is a code and its opening hints: other codes with the feedback that they would get. There are
few codes, so holding some out would only teach a model never to guess them (a code that is never
rewarded is always penalized). So by default every code is in training and in evaluation, but no
(code, hints) pair is in both.
"""

import random
from typing import TypedDict

from agentsgym.envs.mastermind.codes import Code, CodeSpace
from agentsgym.types import session_seed

EVAL_SHARE = 5
"""One out of this many codes, or hint sets of a code, is held out for evaluation."""

Numbered = tuple[int, int]
"""(index of the code, seed of its hints)."""


class Task(TypedDict):
    """`task_data` of Mastermind: the code in words, and the seed of the opening hints."""

    solution: str
    seed: int


def draw_hints(space: CodeSpace, solution: int, seed: int, count: int) -> tuple[Code, ...]:
    """`count` different codes other than the solution, sorted."""
    others = [code for i, code in enumerate(space.codes) if i != solution]
    rng = random.Random(f"mastermind-{solution}-{seed}")
    return tuple(sorted(rng.sample(others, min(count, len(others)))))


def split_by_codes(
    space: CodeSpace, train_per_code: int, eval_per_code: int
) -> tuple[list[Numbered], list[Numbered]]:
    """A fifth of the codes is for evaluation, the others for training."""
    shuffled = sorted(range(len(space)), key=lambda i: session_seed("mastermind-split", i))
    held_out = sorted(shuffled[: max(1, len(space) // EVAL_SHARE)])
    train = sorted(set(shuffled) - set(held_out))
    return (
        [(code, seed) for seed in range(train_per_code) for code in train],
        [(code, seed) for seed in range(eval_per_code) for code in held_out],
    )


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
    space: CodeSpace, code: int, hints: int, train_wanted: int, eval_wanted: int
) -> list[int]:
    """Seeds with different hint sets, as many as the split needs or as can be found."""
    wanted = max(EVAL_SHARE * eval_wanted, -(-train_wanted * EVAL_SHARE // (EVAL_SHARE - 1)) + 1)
    seen: dict[tuple[Code, ...], int] = {}
    for seed in range(20 * wanted):
        seen.setdefault(draw_hints(space, code, seed, hints), seed)
        if len(seen) == wanted:
            break
    return list(seen.values())
