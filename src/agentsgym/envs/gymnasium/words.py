"""Reads which of a few action words an agent's text contains."""

import re
from collections.abc import Collection

from agentsgym.envs.action_text import negates, spoken

MAX_ACTION_CHARACTERS = 4000


def action_word(action: str, words: Collection[str]) -> str | None:
    """The action word in an agent's text; thoughts before `</think>` are ignored.

    Case and other words do not matter. The result is None (no move) if the text contains none of
    the action words or several, if it says "not" or the like, or if it is longer than 4,000
    characters.
    """
    if len(action) > MAX_ACTION_CHARACTERS:
        return None
    said = spoken(action)
    heard = set(re.findall(r"[^\W_]+", said.casefold()))
    named = [word for word in words if word.casefold() in heard]
    return named[0] if len(named) == 1 and not negates(said) else None
