"""Selects held-out questions by their text alone, so that a file may grow."""

import hashlib
from collections.abc import Sequence

from agentsgym.envs.classical_reasoning.questions import Question


def split_questions(
    questions: Sequence[Question], eval_share: float
) -> tuple[list[Question], list[Question]]:
    """Training and held-out questions, disjoint, both in the given order.

    Each side has at least one question if there are two or more.
    """
    held_out = [_place(question) < eval_share for question in questions]
    if len(questions) > 1 and len(set(held_out)) == 1:
        held_out[-1] = not held_out[-1]
    train = [q for q, out in zip(questions, held_out, strict=True) if not out]
    return train, [q for q, out in zip(questions, held_out, strict=True) if out]


def _place(question: Question) -> float:
    """A number in [0, 1) that depends only on the question's words."""
    words = " ".join(question.question.casefold().split())
    digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
