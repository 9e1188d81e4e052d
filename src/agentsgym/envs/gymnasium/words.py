"""Reads which of a few action words an agent's text contains."""

import re
from collections.abc import Collection

MAX_ACTION_CHARACTERS = 4000


def action_word(action: str, words: Collection[str]) -> str | None:
    """The action word in an agent's text; thoughts before `</think>` are ignored.

    Case and other words do not matter. The result is None (no move) if the text contains none of
    the action words or several, or if it is longer than 4,000 characters.
    """
    if len(action) > MAX_ACTION_CHARACTERS:
        return None
    said = action.rpartition("</think>")[2].casefold()
    spoken = set(re.findall(r"[^\W_]+", said))
    named = [word for word in words if word.casefold() in spoken]
    return named[0] if len(named) == 1 else None
