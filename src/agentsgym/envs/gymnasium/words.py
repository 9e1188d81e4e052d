"""Which of a few action words an agent says."""

import re
from collections.abc import Collection

MAX_ACTION_CHARACTERS = 4000


def action_word(action: str, words: Collection[str]) -> str | None:
    """The one of `words` that an action names, thoughts before `</think>` left out.

    Case does not matter, nor does what else is said, but an action that names several of the
    words, none, or runs over 4,000 characters makes no move (None).
    """
    if len(action) > MAX_ACTION_CHARACTERS:
        return None
    said = action.rpartition("</think>")[2].casefold()
    spoken = set(re.findall(r"[^\W_]+", said))
    named = [word for word in words if word.casefold() in spoken]
    return named[0] if len(named) == 1 else None
