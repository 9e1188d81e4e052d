"""Reads an action from a model's text as any reader would: past thoughts, quotes, code fences, bold
type, a leading "Action:", trailing punctuation, and lines of other words around it.

Nothing ambiguous is read: a text that names two actions, or that says "not" beside the action, has
none. Every function takes time linear in the text.
"""

import re
from collections.abc import Callable, Collection
from typing import TypeVar

Read = TypeVar("Read")

MAX_CHARACTERS = 4000
_MOST_LAYERS = 6
_PAIRS = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "*": "*", "_": "_"}
_LABEL = re.compile(
    r"(?P<mark>[*_]{0,3})(?:(?:my|the|your|final|next|first)\s){0,3}"
    r"(?:action|answer|choice|command|guess|move|question|reply|response)"
    r"(?:\s(?:is|would\sbe)\b\s?:?(?P=mark)|(?P=mark)\s?[:=]|\s?[:=](?P=mark))\s?"
    r"|i(?:\swill|\swould|['’]ll|['’]d)?\s(?:choose|guess|pick|play|pull|say)\s",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:avoid|cannot|except|instead|neither|never|no|nor|not|rather|unless|without|\w{1,8}n['’]t)\b",
    re.IGNORECASE,
)
_BRACKETED = re.compile(r"\[([^\[\]]*)\]")
_FENCE = "```"
_WORD = re.compile(r"\w+")


def spoken(action: str) -> str:
    """The action without any thoughts before it and without outer white space."""
    return action.rpartition("</think>")[2].strip()


def bare(text: str) -> str:
    """The text without what people put around an answer: a code fence, a pair of quotes or of bold
    marks, a leading "Action:" or "My guess is", trailing punctuation (but no question mark)."""
    text = text.strip()
    for _ in range(_MOST_LAYERS):
        before = text
        text = _without_pair(without_label(without_fence(text))).rstrip(" \t\n.,;!")
        if text == before:
            break
    return text


def without_fence(text: str) -> str:
    """The content of a code fence that is the whole text, else the text."""
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    inner = text[len(_FENCE) : -len(_FENCE)]
    if _FENCE in inner:
        return text
    language, newline, rest = inner.partition("\n")
    return (rest if newline and " " not in language.strip() else inner).strip()


def without_label(text: str) -> str:
    """The text without a leading "Action:", "The answer is", "My guess is", "I choose"."""
    label = _LABEL.match(text)
    return text[label.end() :].lstrip() if label and label.end() < len(text) else text


def _without_pair(text: str) -> str:
    start, end = 0, len(text)
    while end - start > 1 and _PAIRS.get(text[start]) == text[end - 1]:
        if text.startswith(_FENCE, start):
            break
        start, end = start + 1, end - 1
    return text[start:end].strip()


def negates(text: str) -> bool:
    """Whether the text has a word like "not", so that what it names may be what it is not."""
    return _NEGATION.search(text) is not None


def read_action(
    action: str, read: Callable[[str], Read | None], mentions: Callable[[str], bool]
) -> Read | None:
    """The one action in an agent's text, None if there is none or more than one.

    `read` reads an action that stands alone; `mentions` says whether other words name an action.
    The whole text counts first, then `[…]`, then the lines; beside these, no other words may name
    or negate an action.
    """
    answer = spoken(action)
    if len(answer) > MAX_CHARACTERS:
        return None
    whole = read(answer)
    if whole is None:
        whole = read(bare(answer))
    if whole is not None:
        return whole
    bracketed = _BRACKETED.findall(answer)
    parts = bracketed or answer.splitlines()
    readings = [read(bare(part)) for part in parts]
    actions = {reading for reading in readings if reading is not None}
    others = [part for part, reading in zip(parts, readings, strict=True) if reading is None]
    others += [_BRACKETED.sub("\n", answer)] if bracketed else []
    rest = "\n".join(others)
    return None if len(actions) != 1 or mentions(rest) or negates(rest) else actions.pop()


def read_option(action: str, options: Collection[str]) -> str | None:
    """The option that an agent's text names (see `read_action`), in any case; None without one."""
    answer = spoken(action)
    if answer in options:
        return answer
    by_words = {_one_line(option): option for option in options}
    return read_action(
        answer,
        lambda text: by_words.get(_one_line(text)),
        lambda text: names_any(text, options),
    )


def names_any(text: str, options: Collection[str]) -> bool:
    """Whether one of the options stands in a text, as whole words in any case."""
    sentence = words(text)
    return any(words(option) in sentence for option in options)


def _one_line(text: str) -> str:
    return " ".join(text.casefold().split())


def words(text: str) -> str:
    """The lower-case words of a text without punctuation, a space before and after each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def with_form(prompt: str, form: str, example: str) -> str:
    """The prompt, then the form in one sentence and, as the last line, a legal example
    (`explain_actions`). Small models tend to continue from what they read last."""
    return f"{prompt}\n{form} For example:\n{example}"
