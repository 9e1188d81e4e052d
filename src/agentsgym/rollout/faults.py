"""Describes the error that ended a session."""

import traceback

from agentsgym.types.plain import clean_text, cut
from agentsgym.types.secrets import mask_secrets

_LONGEST = 20_000


def describe(error: BaseException) -> str:
    """The traceback, with a limited length, even if the exception's own methods raise."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # the exception may be of any class
        text = f"{type(error).__name__}, which has no traceback that could be shown"
    return mask_secrets(clean_text(cut(text, _LONGEST)))
