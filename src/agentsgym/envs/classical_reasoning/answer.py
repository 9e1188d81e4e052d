"""Finds the final answer in an agent's text."""

import re

from agentsgym.envs.action_text import spoken, without_fence, without_label

MAX_ACTION_CHARACTERS = 20_000
MAX_ANSWER_CHARACTERS = 500
_TAG = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"\s*`{3}\w*[.,!]?\s*")
_PHRASE = re.compile(r"(?:final answer|answer)\s*(?:is|:|=)\s*:?\s*(.+)", re.IGNORECASE)


def final_answer(action: str) -> str:
    """The final answer in an action, "" if there is none.

    Thoughts before `</think>` are ignored. The first of these that exists is the answer: the last
    `\\boxed{…}`, the last `<answer>…</answer>`, the text after the last "answer is" or "answer:",
    the last line without a leading "My guess is" and the like. A code fence around the text, and
    around the last lines, does not count.
    """
    if len(action) > MAX_ACTION_CHARACTERS:
        return ""
    said = without_fence(spoken(action))
    found = _boxed(said)
    if found is None:
        found = _last(_TAG.findall(said))
    if found is None:
        found = _last(_PHRASE.findall(said))
    if found is None:
        found = _last_line(said)
    answer = found.strip().strip("*").strip()
    usable = len(answer) <= MAX_ANSWER_CHARACTERS and "\x00" not in answer
    return answer if usable else ""


def _last_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip() and not _FENCE.fullmatch(line)]
    return without_label(lines[-1].strip()) if lines else ""


def _last(found: list[str]) -> str | None:
    return found[-1] if found else None


def _boxed(text: str) -> str | None:
    """The content of the last `\\boxed{…}`, with balanced braces."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin = start + len("\\boxed{")
    depth = 1
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position]
    return None
