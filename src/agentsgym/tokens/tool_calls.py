"""Tool calls in the ids that an agent sampled.

Which format a model uses is learned from what its chat template writes for a call. A marker that is
an added token of the tokenizer is found by its id: an answer that spells `<tool_call>` in ordinary
tokens calls nothing. Where a tokenizer has no such token, the marker is looked for in the text.

transformers' `parse_response` reads the formats that are not known here, by the tokenizer's own
`response_template`. For the known ones it is not used: older versions do not type arguments, and
one malformed call makes it read none.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from agentsgym.tokens.control import added_tokens
from agentsgym.tokens.speech import BLOCKS, ActionText
from agentsgym.types import Message, ToolCall, ToolSchema
from agentsgym.types.records import ToolFunction
from agentsgym.types.text import clean_text, map_texts

# Noncharacters of Unicode: one that a text does not contain breaks up markers that it spells.
_MARKS = tuple(map(chr, range(0xFDD2, 0xFDF0)))
_THOUGHTS = (("<think>", "</think>"), *BLOCKS)
_CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """A sampled answer as a message. `attempted` is the number of tool calls that it began; those
    that could be read are the message's `tool_calls`."""

    message: Message
    attempted: int = 0


class _Call(NamedTuple):
    name: str
    arguments: dict[str, Any]
    call_id: str = ""


class _ArgumentTypes:
    """The JSON types of the arguments of `tools`, for formats that write texts without quotes."""

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        self._types: dict[tuple[str, str], set[str]] = {}
        for tool in tools:
            function = _mapping(tool.get("function", tool))
            properties = _mapping(_mapping(function.get("parameters")).get("properties"))
            for key, schema in properties.items():
                self._types[str(function.get("name")), key] = set(_types_in(schema))

    def value(self, tool: str, key: str, text: str) -> Any:
        """The value that `text` writes: the text, unless the argument may be of another type and
        the text is of it."""
        types = self._types.get((tool, key), set())
        if types <= {"string"}:
            return text
        python = {"True": True, "False": False, "None": None}
        try:
            value = python[text] if text in python else _json(text)
        except ValueError:
            return text
        return value if "string" not in types or isinstance(value, dict | list | None) else text


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _types_in(schema: Any) -> Iterator[str]:
    """The types that a JSON schema allows at its top."""
    named = _mapping(schema).get("type")
    yield from filter(None, named if isinstance(named, list) else [named])
    for union in ("anyOf", "oneOf"):
        choices = _mapping(schema).get(union)
        for choice in choices if isinstance(choices, list) else ():
            yield from _types_in(choice)


# -- what stands between markers -------------------------------------------------------------------


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    # 1e999 is JSON, and no client could be sent the infinity that it becomes.
    return float(number) if math.isfinite(float(number)) else _refuse(number[:40])


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def _json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError."""
    values = _json_values(text)
    if len(values) != 1:
        raise ValueError("not one JSON value")
    return values[0]


def _json_values(text: str) -> list[Any]:
    """The values of JSON texts that stand one after another, perhaps with semicolons between."""
    values = []
    text = text.strip()
    while text:
        value, end = _DECODER.raw_decode(text)
        values.append(value)
        text = text[end:].lstrip().removeprefix(";").lstrip()
    return values


_DEEPEST = 100
"""Levels of arguments: what reads bodies refuses twice as many."""


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, dict | list) else 0


def _call(value: Any) -> _Call | None:
    """The call that a JSON value describes."""
    if not isinstance(value, Mapping):
        return None
    name, arguments = value.get("name"), value.get("arguments", value.get("parameters"))
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    if _depth(arguments) > _DEEPEST:
        return None
    call_id = value.get("id")
    return _Call(name, arguments, call_id if isinstance(call_id, str) else "")


_Read = list[_Call | None]  # None for a call that cannot be read


def _json_calls(body: str, types: _ArgumentTypes) -> _Read:
    """`{"name": …, "arguments": {…}}`, several of these, or a list of them."""
    values = _json_values(body)
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    return [_call(value) for value in values] or [None]


def _named_call(body: str, types: _ArgumentTypes) -> _Read:
    """A name and a JSON object, with what Mistral and DeepSeek write around the name."""
    if body.lstrip().startswith("["):
        return _json_calls(body, types)
    head, brace, rest = body.partition("{")
    parts = re.split(r"<｜tool▁sep｜>|\[ARGS\]", head.partition("```")[0])
    named = [part.strip() for part in parts if part.strip()] or [""]
    name, _, call_id = named[-1].partition("[CALL_ID]")
    arguments = _json((brace + rest).strip().removesuffix("```"))
    return [_call({"name": name, "arguments": arguments, "id": call_id})]


_PARAMETER = re.compile(
    r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|</function>|$)", re.DOTALL
)
_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def _tagged_call(body: str, types: _ArgumentTypes) -> _Read:
    """JSON, or tags as Qwen3.5 and Nemotron (`<parameter=key>`) or GLM (`<arg_key>`) write them."""
    body = body.strip()
    if body.startswith(("{", "[")):
        return _json_calls(body, types)
    function = re.match(r"<function=([^>\n]+)>", body)
    name = function[1] if function else re.split(r"\n|<arg_key>", body, maxsplit=1)[0].strip()
    pairs = (_PARAMETER if function else _ARGUMENT).findall(body)
    arguments = {key: types.value(name, key, text) for key, text in pairs}
    return [_call({"name": name, "arguments": arguments})]


def _quoted_key(match: re.Match[str]) -> str:
    return f"{json.dumps(match[1].strip())}:"


def _gemma_call(body: str, types: _ArgumentTypes) -> _Read:
    """`call:name{key:<|"|>text<|"|>,other:1}`: keys without quotes, texts between a token."""
    head, brace, rest = body.partition("{")
    pieces = (brace + rest).split('<|"|>')
    for number, piece in enumerate(pieces):
        if number % 2:
            pieces[number] = json.dumps(piece)
        else:
            piece = re.sub(r"(?<=[{,])([^{}\[\],:]+):", _quoted_key, piece)
            pieces[number] = re.sub(r"(?<=[:,\[])None\b", "null", piece)
    name = head.strip().removeprefix("call:")
    return [_call({"name": name, "arguments": _json("".join(pieces))})]


# -- the formats -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallFormat:
    """A format of calls, and the `families` of models that use it. A call, or several, stands
    between `opener` and `closer`; without a closer, it ends at the next opener or at the end."""

    families: str
    opener: str
    closer: str
    read: Callable[[str, _ArgumentTypes], _Read]


_HARMONY = CallFormat("gpt-oss", "to=functions.", "", _named_call)
_BARE = CallFormat("Llama 3", "", "", _json_calls)
FORMATS = (
    CallFormat("Qwen, SmolLM3, GLM, Granite 4", "<tool_call>", "</tool_call>", _tagged_call),
    CallFormat("Phi-4, Granite 3", "<|tool_call|>", "<|/tool_call|>", _json_calls),
    CallFormat("Gemma 4", "<|tool_call>", "<tool_call|>", _gemma_call),
    CallFormat("Mistral", "[TOOL_CALLS]", "", _named_call),
    CallFormat("DeepSeek", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", _named_call),
    _HARMONY,
    _BARE,
)
FAMILIES = ", ".join(one.families for one in FORMATS)
_INNER = {'<|"|>', "<｜tool▁sep｜>", "[ARGS]", "[CALL_ID]"}
_INNER |= {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}


def format_of(written: str) -> CallFormat | None:
    """The format in which a template wrote a call of the tool `LOOK_UP`; None if it is unknown."""
    for one in FORMATS[:-1]:
        if one.opener in written:
            return one
    bare = re.match(r'\s*(<\|python_\w+\|>)*\{"name": ?"\w+", ?"(parameters|arguments)"', written)
    return _BARE if bare else None


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
        self._types = _ArgumentTypes(tools)
        self.format = format_of(written)
        self._opener, closer = (self.format.opener, self.format.closer) if self.format else ("", "")
        self.closer = closer if closer in written else ""
        self._ids = known.get(self._opener), known.get(self.closer)
        self._python_tag = known.get("<|python_tag|>", -1)
        markers = {*_INNER, self._opener, closer} & known.keys() if self.format else known.keys()
        self._markers = {known[word]: word for word in markers}
        longest_first = sorted(markers, key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._thoughts = [(known[a], known[b]) for a, b in _THOUGHTS if a in known and b in known]
        self.thinks = prompt.rstrip().endswith("<think>")  # already when it begins

    def __call__(self, token_ids: Sequence[int], first: int = 0) -> ParsedAnswer:
        """The answer as a message; its calls are numbered from `first`."""
        ids = self._text.without_end(token_ids)
        content, calls = self._cut(ids) if self.format else self._by_library(ids)
        read = [call for call in calls if call is not None]
        if not read:
            return ParsedAnswer(Message(role="assistant", content=self._text(ids)), len(calls))
        message = Message(role="assistant", content=content.strip())
        message["tool_calls"] = [_numbered(call, first + n) for n, call in enumerate(read)]
        return ParsedAnswer(message, len(calls))

    def _cut(self, ids: list[int]) -> tuple[str, _Read]:
        """The text outside calls, and the calls."""
        if self.format == _HARMONY:
            return self._text(ids), self._in_messages(ids)
        if self.format == _BARE:
            return "", self._bare(ids)
        if self._ids[0] is not None and (self._ids[1] is not None or not self.closer):
            return self._between_ids(ids)
        return self._between_words(self._text(ids))

    def _between_ids(self, ids: list[int]) -> tuple[str, _Read]:
        """The calls between marker tokens, after the agent's thoughts."""
        at = self._after_thoughts(ids)
        outside, calls = ids[:at], list[_Call | None]()
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

    def _between_words(self, text: str) -> tuple[str, _Read]:
        """The calls between markers that are ordinary text."""
        calls = list[_Call | None]()
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

    def _in_messages(self, ids: list[int]) -> _Read:
        """The calls of messages to a function."""
        calls = list[_Call | None]()
        for header, body in self._text.messages(ids):
            if to := re.search(r"to=functions\.([^\s<]+)", header):
                calls += self._read(to[1] + self._tokenizer.decode(body))
        return calls

    def _bare(self, ids: list[int]) -> _Read:
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

    def _read(self, body: str, mark: str = "") -> _Read:
        """The calls in a body, without the `mark`s in it."""
        assert self.format is not None
        try:
            calls = self.format.read(body, self._types)
            return [call and _Call(*map_texts(call, partial(_cleaned, mark))) for call in calls]
        except (ValueError, RecursionError):
            return [None]

    def _by_library(self, ids: list[int]) -> tuple[str, _Read]:
        """The same as the tokenizer's own response template reads it."""
        text, mark = self._broken(ids)
        try:
            parsed = self._tokenizer.parse_response(text, prefix="")
            parsed = map_texts(parsed, partial(_cleaned, mark))
            calls = [_call(one["function"]) for one in parsed.get("tool_calls") or ()]
        except Exception:  # a model's answer may break any parser
            return "", []
        content = parsed.get("content")
        return content if isinstance(content, str) else "", calls


def _cleaned(mark: str, text: str) -> str:
    """A text without marks, and without lone surrogates, which JSON can spell."""
    return clean_text(text.replace(mark, ""))


def _numbered(call: _Call, number: int) -> ToolCall:
    """The call as a message has it. It keeps an id that the agent sampled; else nine letters and
    digits are what every template takes."""
    call_id = call.call_id if _CALL_ID.fullmatch(call.call_id) else f"call{number:05d}"
    function = ToolFunction(name=call.name, arguments=call.arguments)
    return {"type": "function", "id": call_id, "function": function}


def _after_json(text: str, begin: int) -> int:
    """Where the JSON value at `begin` ends; `begin` if there is none."""
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    try:
        return _DECODER.raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return begin
