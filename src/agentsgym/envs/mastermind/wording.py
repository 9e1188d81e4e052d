"""Mastermind in words: codes, feedback, and reading them back."""

import re
from collections.abc import Sequence

from agentsgym.envs.action_text import names_any, read_action, spoken
from agentsgym.envs.mastermind.codes import Code, Feedback

COLORS = ("red", "green", "blue", "yellow", "white", "black", "orange", "pink")
_FEEDBACK = re.compile(r"(\d+) right place, (\d+) right colour")


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


def read_feedback(text: str) -> Feedback | None:
    """The feedback at the start of a text."""
    found = _FEEDBACK.match(text)
    return Feedback(int(found[1]), int(found[2])) if found else None


def read_hints(text: str, names: Sequence[str], length: int) -> list[tuple[Code, Feedback]]:
    """The lines of a text that contain a code and its feedback."""
    hints = []
    for line in text.splitlines():
        words, _, rest = line.partition(": ")
        code, answer = read_code(words, names, length), read_feedback(rest)
        if code is not None and answer is not None:
            hints.append((code, answer))
    return hints
