"""Reads the move from an answer: one move per step, however long the answer is."""

import re

from agentsgym.envs.action_text import bare, spoken

MAX_ACTION_CHARACTERS = 4000
MAX_MOVE_CHARACTERS = 64
_BRACKETS = re.compile(r"\[[^\[\]]*\]")


def last_move(action: str) -> str:
    """The last `[...]` of an action, ignoring thoughts before `</think>`; "" if there is no move.

    An action without any bracket is put into brackets, as TextArena's own wrapper does, without
    quotes, a leading "Action:" and the like (see `bare`). A move is
    at most 64 characters of printable ASCII, and an action longer than 4,000 characters is no
    move: games pass the text in the brackets to `int`, which raises for a superscript digit and
    for five thousand nines.
    """
    if len(action) > MAX_ACTION_CHARACTERS:
        return ""
    said = spoken(action)
    found = _BRACKETS.findall(said)
    if found:
        move: str = found[-1]
    elif said and "[" not in said and "]" not in said:
        move = f"[{bare(said)}]"
    else:
        return ""
    usable = len(move) <= MAX_MOVE_CHARACTERS and move.isascii() and move.isprintable()
    return move if usable else ""
