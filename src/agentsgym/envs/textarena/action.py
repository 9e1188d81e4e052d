"""Which move an answer makes: one per step, however much is said around it."""

import re

MAX_ACTION_CHARACTERS = 4000
MAX_MOVE_CHARACTERS = 64
_BRACKETS = re.compile(r"\[[^\[\]]*\]")


def last_move(action: str) -> str:
    """The last `[...]` of an action, thoughts before `</think>` left out; "" where there is none.

    An action without any bracket is put into brackets, as TextArena's own wrapper does. Only
    printable ASCII of at most 64 characters makes a move, and an action of more than 4,000
    characters makes none: games hand what stands in the brackets to `int`, which fails on a
    superscript digit and on five thousand nines.
    """
    if len(action) > MAX_ACTION_CHARACTERS:
        return ""
    said = action.rpartition("</think>")[2].strip()
    found = _BRACKETS.findall(said)
    if found:
        move: str = found[-1]
    elif said and "[" not in said and "]" not in said:
        move = f"[{said}]"
    else:
        return ""
    usable = len(move) <= MAX_MOVE_CHARACTERS and move.isascii() and move.isprintable()
    return move if usable else ""
