"""A tokenizer's chat template: rendering it, what it writes around messages, what it rewrites."""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from posixpath import commonprefix
from typing import Any

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser

from agentsgym.types import Message, Tokenizer, ToolSchema
from agentsgym.types.messages import tool_call
from agentsgym.types.text import visible

logger = logging.getLogger(__name__)

# Stands for a message's text. Plain letters, so that no template trims or escapes them.
PROBE = "agentsgymprobe"

_RESULT = "agentsgymresult"

# Arguments of `apply_chat_template` that a codec must set itself, or that return no text.
_OURS = frozenset(
    {
        "conversation",
        "messages",
        "tokenize",
        "add_generation_prompt",
        "continue_final_message",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
        "sanitize_control_tokens",
    }
)
# Arguments that `apply_chat_template` accepts even if the template does not read them.
_READ_ANYWAY = frozenset({"chat_template", "tools", "documents"})
END_OF_THOUGHT = "</think>"


class TemplateFailed(ValueError):
    """A chat template did not render a conversation; the message says why."""


@dataclass(frozen=True, slots=True)
class TemplateText:
    """The template's own text: `around` all messages of a plain conversation, `after` an answer up
    to the next message's content, and `at_end`, after the last one. All are empty if unknown."""

    around: str = ""
    after: str = ""
    at_end: str = ""


@dataclass(frozen=True, slots=True)
class RolesTaken:
    """What a template shows, each message in its place: a `system` message at the beginning,
    one that is `system_alone`, those of the system that stand `system_anywhere`, and `repeated`
    turns of the user or the assistant."""

    system: bool
    system_alone: bool
    system_anywhere: bool
    repeated: bool


class ChatTemplate:
    """Renders conversations with a tokenizer's chat template, in transformers' sandbox.

    Args:
        tokenizer: a tokenizer with a chat template, or any tokenizer if `options` contain one.
        options: extra arguments of `apply_chat_template`, for instance
            `{"enable_thinking": False}`; `"chat_template"` replaces the tokenizer's own template.

    If a template expects a content as a list of parts (`[{"type": "text", "text": …}]`), it gets
    one.

    Raises ValueError for an option that callers may not set and for a template that drops the
    messages' text.
    """

    def __init__(self, tokenizer: Tokenizer, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        refused = sorted(_OURS & self._options.keys())
        if refused:
            raise ValueError(f"template option {refused[0]!r} cannot be set: rendering sets it")
        self.source = template_source(tokenizer, self._options)
        unread = unread_options(tokenizer, self._options)
        if unread:
            logger.warning(
                "The chat template does not read these options, so they have no effect: %s.",
                ", ".join(map(repr, unread)),
            )
        self._as_parts = False
        self._as_parts = self._wants_parts()
        self.written = self._written()

    def render(self, messages: Sequence[Mapping[str, Any]], *, prompt: bool = True) -> str:
        """The conversation as text, with the generation prompt unless `prompt` is False. Raises
        TemplateFailed."""
        try:
            text = self._rendered([self._prepared(message) for message in messages], prompt)
        except Exception as error:  # a template may refuse a conversation with any exception
            reason = visible(f"{type(error).__name__}: {error}")[:500]
            raise TemplateFailed(f"the chat template cannot render it: {reason}") from error
        return text

    def _rendered(self, conversation: list[Any], prompt: bool) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=prompt, **self._options
            )
        )

    def _prepared(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message in the form that the template reads."""
        own = message.to_dict() if isinstance(message, Message) else {**message}
        prepared = _in_parts(own) if self._as_parts else own
        return _in_form(prepared, *self._call_form) if "tool_calls" in own else prepared

    @cached_property
    def _call_form(self) -> tuple[bool, bool]:
        """The form in which the template takes tool calls (see `_in_form`)."""
        user, answer, result = calling()
        for form in _CALL_FORMS:
            try:
                if PROBE in self._rendered(
                    [{**user}, _in_form({**answer}, *form), {**result}], True
                ):
                    return form
            except Exception:  # noqa: S112 - a template may refuse a form with any exception
                continue
        return _CALL_FORMS[0]

    @cached_property
    def written_call(self) -> str:
        """What the template writes of an answer that calls the tool `LOOK_UP`; "" if it refuses
        it."""
        user, answer, _ = calling()
        try:
            asked, prompted = self.render([user], prompt=False), self.render([user])
            both = self.render([user, answer], prompt=False)
        except TemplateFailed:
            return ""
        before = prompted if both.startswith(prompted) else commonprefix([asked, both])
        return both[len(before) :]

    def shows_calls(self, count: int) -> bool:
        """Whether the template shows so many calls in one answer."""
        question, *rest = calling(count=count)
        try:
            before, text = self.render([question]), self.render([question, *rest])
        except TemplateFailed:
            return False
        return text.count(PROBE) >= before.count(PROBE) + count

    def unshown(self) -> str:
        """What the template does not show of tools, calls and results, if it gets the tool
        `LOOK_UP` among its options; "" if it shows all."""
        question, *rest = calling()
        try:
            before = self.render([question])
            text = self.render([question, *rest])
        except TemplateFailed as error:
            return f"calls of tools ({error})"
        name = LOOK_UP["function"]["name"]
        shown = {
            "tools": name in before,
            "calls of tools": text.count(name) > before.count(name),
            "results of tools": _RESULT in text,
        }
        return next((what for what, seen in shown.items() if not seen), "")

    def parts_around(self, roles: Sequence[str]) -> list[str]:
        """The template's own text before, between and after messages of these roles, one more than
        there are; empty if it refuses the conversation, or does not show each content once and in
        its place."""
        texts = [f"{PROBE}{number}end" for number in range(len(roles))]
        pairs = zip(roles, texts, strict=True)
        try:
            text = self.render([Message(role, content) for role, content in pairs])
        except TemplateFailed:
            return []
        parts = re.split(f"({PROBE}\\d+end)", text)
        return parts[::2] if parts[1::2] == texts else []

    @cached_property
    def roles_taken(self) -> RolesTaken:
        """Which roles may stand where."""
        system, user, answer = "system", "user", "assistant"
        anywhere = (
            (system, system, user, system, answer, system, user, system),
            (user, system),  # some templates do otherwise where the first message is no system's
            (user, answer, system, user),
            (user, answer, user, system),
        )
        return RolesTaken(
            system=bool(self.parts_around([system, user])),
            system_alone=bool(self.parts_around([system])),
            system_anywhere=all(map(self.parts_around, anywhere)),
            repeated=bool(self.parts_around([user, user, answer, answer, user])),
        )

    @property
    def dated(self) -> bool:
        """Whether the template writes today's date."""
        return "strftime_now" in self.variables

    @property
    def variables(self) -> frozenset[str]:
        """The variables that the template reads from outside; empty if its source is unknown."""
        return _variables(self.source)

    def default_system_prompt(self) -> str:
        """The template's own system prompt for a conversation without one; "" if it writes none or
        refuses such conversations."""
        alone, both = self.parts_around(["user"]), self.parts_around(["system", "user"])
        if not (alone and both):
            return ""
        head, (before, between, _) = alone[0], both
        if not (before and head.startswith(before) and head.endswith(between)):
            return ""
        return head[len(before) : len(head) - len(between)]

    def _written(self) -> TemplateText:
        """The template's own text around plain contents, with and without a system message."""
        roles = ("system", "user", "assistant", "user")
        with_system, without = self.parts_around(roles), self.parts_around(roles[1:])
        *_, after, at_end = without or with_system or ["", ""]
        return TemplateText("\0".join((*with_system, *without)), after, at_end)

    def _wants_parts(self) -> bool:
        """Whether the template drops a content given as a string but shows a list of parts."""
        as_text = self._shown(Message("user", PROBE))
        if as_text:
            return False
        as_parts = self._shown(_in_parts(Message("user", PROBE)))
        if as_text is False and not as_parts:
            raise ValueError(
                "the chat template drops the text of a user's message, both as a string and as "
                "a list of text parts"
            )
        return bool(as_parts)

    def _shown(self, message: Mapping[str, Any]) -> bool | None:
        """Whether the template shows a message's text; None if it refuses the message."""
        try:
            return PROBE in self.render([message])
        except TemplateFailed:
            return None


def _in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


# Templates differ in how they take an answer that calls tools: the arguments as a JSON text
# (DeepSeek), and no content where it is empty.
_CALL_FORMS = ((False, False), (True, False), (False, True), (True, True))


def _in_form(message: dict[str, Any], as_text: bool, no_content: bool) -> dict[str, Any]:
    """A message with its calls in this form."""
    calls = message["tool_calls"]
    if as_text:
        arguments = [json.dumps(one["function"]["arguments"], ensure_ascii=False) for one in calls]
        calls = [
            {**one, "function": {**one["function"], "arguments": text}}
            for one, text in zip(calls, arguments, strict=True)
        ]
    content = None if no_content and not message["content"] else message["content"]
    return {**message, "content": content, "tool_calls": calls}


LOOK_UP: ToolSchema = {
    "type": "function",
    "function": {
        "name": "agentsgym_lookup",
        "description": "Looks something up.",
        "parameters": {
            "type": "object",
            "properties": {PROBE: {"type": "string", "description": "what"}},
            "required": [PROBE],
        },
    },
}
"""A tool for trying templates."""


def calling(argument: str | int = 0, first: int = 0, count: int = 1) -> list[Message]:
    """A question, an answer that calls the tool `LOOK_UP` so many times, and the results. Calls are
    numbered from `first`. Around a number no template writes tokens of its own."""
    name = LOOK_UP["function"]["name"]
    numbers = range(first, first + count)
    calls = tuple(tool_call(number, name, {PROBE: argument}) for number in numbers)
    return [
        Message("user", "Go."),
        Message("assistant", "", calls),
        *(Message("tool", _RESULT, tool_call_id=call["id"], name=name) for call in calls),
    ]


def template_source(tokenizer: Tokenizer, options: Mapping[str, Any]) -> str | None:
    """The source of the template that renders: the one in `options`, else the tokenizer's own (the
    default one of several). None if there is none or if it cannot be found."""
    choice = options.get("chat_template")
    own = tokenizer.chat_template
    known = own if isinstance(own, Mapping) else {"default": own}
    source = known.get(choice or "default", choice)
    return source if isinstance(source, str) and source else None


def unread_options(tokenizer: Tokenizer, options: Mapping[str, Any]) -> list[str]:
    """The `options` that the template does not read, so that they have no effect; none if its
    source is unknown."""
    source = template_source(tokenizer, options)
    return sorted(options.keys() - _READ_ANYWAY - _variables(source)) if source else []


def _variables(source: str | None) -> frozenset[str]:
    tree = parse_template(source) if source else None
    return frozenset(find_undeclared_variables(tree)) if tree is not None else frozenset()


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's text; it does not change the output."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


# The environment only parses templates. Prompts are not HTML.
_ENVIRONMENT = Environment(  # noqa: S701
    trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlock]
)


@lru_cache(maxsize=64)
def parse_template(template: str) -> nodes.Template | None:
    """The syntax tree of a chat template (do not change it); None if the text is no template."""
    try:
        return _ENVIRONMENT.parse(template)
    except (TemplateError, RecursionError):
        return None


REWRITES = {
    "thoughts": "drops earlier thoughts",
    "opening": "writes something else before earlier answers",
    "answer": "changes the text of earlier answers",
    "earlier": "changes earlier turns",
}
"""What a template changed (`Row.rewrites`), in words whose subject is the template."""


def rewriting(was: str, now: str, messages: Sequence[Message], new: int = 1) -> str:
    """What changed between two renderings, in a word: "thoughts" (those of an earlier answer are
    dropped), "answer" (the text of the last answer changed), "opening" (what the template writes
    before it) or "earlier" (anything before).

    `was` is the context before the last answer, which the last `new` messages follow, and that
    answer; `now` is the whole conversation as it is rendered now.
    """
    if any(thought in was and thought not in now for thought in _thoughts(messages)):
        return "thoughts"
    *read_before, answer = messages[: len(messages) - new]
    before = len(was) - len(answer.content)
    pairs = enumerate(zip(was, now, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(was), len(now)))
    if at > before or (answer.content and at == before and answer.tool_calls):
        return "answer"
    observation = read_before[-1].content if read_before else ""
    read = was.rfind(observation, 0, before)
    return "opening" if at >= read + len(observation) else "earlier"


def _thoughts(messages: Sequence[Message]) -> Iterator[str]:
    """The texts that the agent thought."""
    for message in messages:
        thought, end, _ = message.content.partition(END_OF_THOUGHT)
        if message.role == "assistant" and end and (text := thought.strip()):
            yield text.removeprefix("<think>").strip() or text
