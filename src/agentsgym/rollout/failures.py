"""The errors of failed rollouts."""

import traceback
from collections.abc import Iterable

from agentsgym.types import Rollout
from agentsgym.types.text import clean_text, cut, mask_secrets

MOST_ERRORS = 20
"""Limit of distinct errors that are logged, for environments whose messages all differ."""
_LONGEST = 20_000


def describe(error: BaseException) -> str:
    """The traceback, with a limited length, even if the exception's own methods raise."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # the exception may be of any class
        text = f"{type(error).__name__}, which has no traceback that could be shown"
    return mask_secrets(clean_text(cut(text, _LONGEST)))


class EveryRolloutFailed(RuntimeError):
    """All rollouts of a batch failed. `traceback` is that of the first; the message ends with it.
    `sentence` is the error on one line."""

    def __init__(self, what: str, traceback: str) -> None:
        super().__init__(f"{what}; the first one:\n{traceback}")
        self.traceback = traceback
        self.sentence = f"{what}; the first one: {last_line(traceback)}"


def last_line(error: str) -> str:
    """The line of a traceback with the exception's name."""
    lines = error.strip().splitlines()
    return lines[-1].strip() if lines else ""


def samples(rollouts: Iterable[Rollout]) -> list[str]:
    """One error per distinct last line, in the order of the rollouts; the number is limited."""
    errors: dict[str, str] = {}
    for rollout in rollouts:
        if rollout.error is not None and len(errors) < MOST_ERRORS:
            errors.setdefault(last_line(rollout.error), rollout.error)
    return list(errors.values())
