"""Tool calls in the ids that an agent sampled.

Which format a model uses is learned from what its chat template writes for a call. A marker that is
an added token of the tokenizer is found by its id: an answer that spells `<tool_call>` in ordinary
tokens calls nothing. Where a tokenizer has no such token, the marker is looked for in the text.

transformers' `parse_response` reads the formats that are not known here, by the tokenizer's own
`response_template`. For the known ones it is not used: older versions do not type arguments, and
one malformed call makes it read none.
"""

import itertools
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from agentsgym.tokens.control import added_tokens
from agentsgym.tokens.speech import BLOCKS, ActionText
from agentsgym.tokens.tool_formats import INNER, format_of
from agentsgym.tokens.tool_formats.reading import DECODER, ArgumentTypes, Read, call_of
from agentsgym.types import Message, ToolCall, ToolSchema
from agentsgym.types.messages import tool_call
from agentsgym.types.text import clean_text, map_texts

# Noncharacters of Unicode: one that a text does not contain breaks up markers that it spells.
_MARKS = tuple(map(chr, range(0xFDD2, 0xFDF0)))
_THOUGHTS = (("<think>", "</think>"), *BLOCKS)
_CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")


class CallReader:
    """Reads the calls in answers of a tokenizer whose template writes a call as `written` and ends
    prompts with `prompt`."""

    def __init__(
        self,
        tokenizer: Any,
        text: ActionText,
        written: str,
        prompt: str,
        tools: Sequence[ToolSchema],
    ) -> None:
        known = {word: number for word, (number, _) in added_tokens(tokenizer)}
        self._tokenizer = tokenizer
        self._text = text
        self._types = ArgumentTypes(tools)
        self.format = format_of(written)
        self._opener, closer = (self.format.opener, self.format.closer) if self.format else ("", "")
        self.closer = closer if closer in written else ""
        self._ids = known.get(self._opener), known.get(self.closer)
        self._python_tag = known.get("<|python_tag|>", -1)
        markers = {*INNER, self._opener, closer} & known.keys() if self.format else known.keys()
        self._markers = {known[word]: word for word in markers}
        longest_first = sorted(markers, key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._thoughts = [(known[a], known[b]) for a, b in _THOUGHTS if a in known and b in known]
        self.thinks = prompt.rstrip().endswith("<think>")  # already when it begins

    def __call__(self, token_ids: Sequence[int], first: int = 0) -> tuple[Message, int]:
        """The answer as a message, whose calls are numbered from `first`, and how many more it
        began, which could not be read."""
        ids = self._text.without_end(token_ids)
        content, calls = self._cut(ids) if self.format else self._by_library(ids)
        read = [call for call in calls if call is not None]
        if not read:
            return Message("assistant", self._text(ids)), len(calls)
        numbered = tuple(_numbered(call, first + n) for n, call in enumerate(read))
        return Message("assistant", content.strip(), numbered), len(calls) - len(read)

    def _cut(self, ids: list[int]) -> tuple[str, Read]:
        """The text outside calls, and the calls."""
        if self.format and self.format.in_messages:
            return self._text(ids), self._in_messages(ids)
        if self.format and self.format.whole:
            return "", self._bare(ids)
        if self._ids[0] is not None and (self._ids[1] is not None or not self.closer):
            return self._between_ids(ids)
        return self._between_words(self._text(ids))

    def _between_ids(self, ids: list[int]) -> tuple[str, Read]:
        """The calls between marker tokens, after the agent's thoughts."""
        at = self._after_thoughts(ids)
        outside, calls = ids[:at], Read()
        while at < len(ids):
            if ids[at] != self._ids[0]:
                outside.append(ids[at])
                at += 1
                continue
            end = next((n for n in range(at + 1, len(ids)) if ids[n] in self._ids), len(ids))
            closes = bool(self.closer) and end < len(ids) and ids[end] == self._ids[1]
            body = self._broken(ids[at + 1 : end])
            calls += self._read(*body) if closes or not self.closer else [None]
            at = end + closes
        return self._text(outside), calls

    def _after_thoughts(self, ids: list[int]) -> int:
        """Where the thoughts before the first call end."""
        before = ids[: ids.index(self._ids[0])] if self._ids[0] in ids else ids
        for number, (first, last) in enumerate(self._thoughts):
            if first in before or (self.thinks and number == 0):
                return ids.index(last) + 1 if last in ids else len(ids)
        return 0

    def _between_words(self, text: str) -> tuple[str, Read]:
        """The calls between markers that are ordinary text."""
        calls = Read()
        at = 0
        if self.thinks or "<think>" in text.partition(self._opener)[0]:
            at = text.find("</think>")
            if at < 0:
                return text, calls
        outside = text[:at]
        while (begin := text.find(self._opener, at)) >= 0:
            outside += text[at:begin]
            begin += len(self._opener)
            stop = text.find(self.closer or self._opener, _after_json(text, begin))
            calls += self._read(text[begin:stop]) if stop >= 0 else [None]
            at = stop + len(self.closer) if stop >= 0 else len(text)
        return outside + text[at:], calls

    def _in_messages(self, ids: list[int]) -> Read:
        """The calls of messages to a function."""
        calls = Read()
        for header, body in self._text.messages(ids):
            if to := re.search(r"to=functions\.([^\s<]+)", header):
                calls += self._read(to[1] + self._tokenizer.decode(body))
        return calls

    def _bare(self, ids: list[int]) -> Read:
        """The calls of an answer that consists of them."""
        text = self._text(ids).strip().removeprefix("<|python_tag|>")
        begins = self._python_tag in ids or re.match(r'\{\s*"name"\s*:', text)
        return self._read(text) if begins else []

    def _broken(self, ids: Sequence[int]) -> tuple[str, str]:
        """The text of ids, with a mark that breaks up markers which are only spelled until the
        calls have been read; and the mark."""
        whole = self._tokenizer.decode(list(ids))
        mark = next((mark for mark in _MARKS if mark not in whole), _MARKS[0])
        pieces: list[str] = []
        for word, run in itertools.groupby(ids, self._markers.get):
            some = list(run)
            text = word * len(some) if word else self._tokenizer.decode(some)
            spelled = () if word else self._spelled.finditer(text)
            for match in reversed(list(spelled)):
                text = text[: match.start() + 1] + mark + text[match.start() + 1 :]
            pieces.append(text)
        return "".join(pieces), mark

    def _read(self, body: str, mark: str = "") -> Read:
        """The calls in a body, without the `mark`s in it."""
        assert self.format is not None
        try:
            calls = self.format.read(body, self._types)
            return [call and map_texts(call, partial(_cleaned, mark)) for call in calls]
        except (ValueError, RecursionError):
            return [None]

    def _by_library(self, ids: list[int]) -> tuple[str, Read]:
        """The same as the tokenizer's own response template reads it."""
        text, mark = self._broken(ids)
        try:
            parsed = self._tokenizer.parse_response(text, prefix="")
            parsed = map_texts(parsed, partial(_cleaned, mark))
            calls = [call_of(one["function"]) for one in parsed.get("tool_calls") or ()]
        except Exception:  # a model's answer may break any parser
            return "", []
        content = parsed.get("content")
        return content if isinstance(content, str) else "", calls


def _cleaned(mark: str, text: str) -> str:
    """A text without marks, and without lone surrogates, which JSON can spell."""
    return clean_text(text.replace(mark, ""))


def _numbered(call: ToolCall, number: int) -> ToolCall:
    """The call as a message has it. It keeps an id that the agent sampled, if it is one of nine
    letters and digits, which every template takes."""
    own = call["id"] if _CALL_ID.fullmatch(call["id"]) else number
    return tool_call(own, **call["function"])


def _after_json(text: str, begin: int) -> int:
    """Where the JSON value at `begin` ends; `begin` if there is none."""
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    try:
        return DECODER.raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return begin
