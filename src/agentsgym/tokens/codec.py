"""Encodes conversations as token ids and never re-encodes a sampled token.

`PlainCodec` is for tokenizers without a chat template: each text is encoded separately with
`add_special_tokens=False`, and the ids are joined. `TemplateCodec` finds out which text the chat
template puts between a sampled action and the next one, and detects a template that rewrites
history.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from posixpath import commonprefix
from typing import Any

from agentsgym.tokens.control import ControlTokens, map_texts
from agentsgym.tokens.speech import ActionText
from agentsgym.tokens.template import (
    END_OF_THOUGHT,
    PROBE,
    PROBE_TOOL,
    ChatTemplate,
    TemplateFailed,
    rewriting,
    template_source,
)
from agentsgym.tokens.tool_calls import FAMILIES, CallReader, ParsedAnswer
from agentsgym.types import Message, Tokenizer, ToolSchema
from agentsgym.types.records import ToolFunction

logger = logging.getLogger(__name__)

_MOST_OPENINGS = 1024
_MOST_TOOLS = 64
THESE_DO = f"templates of these families can be used with tools: {FAMILIES}"
NO_TEMPLATE = f"a tokenizer without a chat template has no tool calls; {THESE_DO}"
# Answers and observations of the conversations on which a template is tried.
_PLAIN = ("A mouse?", " a\nb\n", "")
_THOUGHT = ("<think>\nhm\n</think>\n\nA horse.", "yes", "<think>a</think>b")
_READ = ("No.", "<tool_response>\nYes.\n</tool_response>", " \n", "Yes.")
_TURNS = 10


@dataclass(frozen=True, slots=True)
class Opening:
    """The context of a first action: `token_ids`, and the `text` that was encoded."""

    token_ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Bridge:
    """The tokens after an action. `delta` is appended to the row; None means that the template
    rewrote history, so that a new row must start from `text`, and `rewrites` says what of it (see
    `rewriting`). `text` is the whole context as the template renders it now."""

    delta: tuple[int, ...] | None
    text: str
    rewrites: str = ""


class PlainCodec:
    """Texts encoded separately and joined, for tokenizers without a chat template."""

    def __init__(self, tokenizer: Tokenizer, *, special_tokens_meant: bool = False) -> None:
        self.control = ControlTokens(tokenizer)
        self.turn_end = _end_of_text(tokenizer)
        self._text = ActionText(tokenizer, self.turn_end)
        self._verbatim = special_tokens_meant

    def open(self, messages: Sequence[Message]) -> Opening:
        """Encode the contents of all messages and join them."""
        return Opening(tuple(i for message in messages for i in self._encode(message)), "")

    def bridge(
        self, text: str, messages: Sequence[Message], action_ids: Sequence[int], new: int = 1
    ) -> Bridge:
        """Encode the last `new` messages, those after the action."""
        return Bridge(self.open(messages[len(messages) - new :]).token_ids, "")

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of a text agent's words; special tokens in them count as ordinary text."""
        return self.control.encode(self.control.mark(text, own=True))

    def encode_answer(self, message: Message) -> tuple[int, ...]:
        """Token ids of a text agent's answer. Raises ValueError if it calls tools."""
        if message.get("tool_calls"):
            raise ValueError(NO_TEMPLATE)
        return self.encode_action(message["content"])

    def with_tools(self, tools: Sequence[ToolSchema]) -> "PlainCodec":
        """The codec itself. Raises ValueError if there are tools."""
        if tools:
            raise ValueError(NO_TEMPLATE)
        return self

    def answer(self, token_ids: Sequence[int], first: int = 0) -> ParsedAnswer:
        """Sampled ids as a message."""
        return ParsedAnswer(Message(role="assistant", content=self._text(token_ids)))

    def _encode(self, message: Message) -> tuple[int, ...]:
        return self.control.encode(_marked(message, self.control, self._verbatim)["content"])


class TemplateCodec:
    """Encodes the text that the tokenizer's chat template adds (its deltas).

    **Templates that append.** Rendering the whole conversation at each step would cost more with
    every step. If a template appends, only the opening (the messages before the first answer), the
    last answer and the new message are rendered, and what follows the opening in that text is
    appended to the row. The result equals a full rendering if the template never changes what it
    wrote before, and if what it writes does not depend on the messages in between. Both are
    checked once per template and roles of the opening, on a conversation of ten turns with texts
    that templates are known to look for, and, before the first conversation with thoughts, on one
    that has some. If any step differs, every step is rendered in full. As a further check each
    conversation is rendered in full whenever its length has doubled.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template_options: Mapping[str, Any] | None = None,
        *,
        special_tokens_meant: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._options = dict(template_options or {})
        self._with_tools: dict[str, TemplateCodec] = {}
        self.template = ChatTemplate(tokenizer, template_options)
        self.control = ControlTokens(tokenizer, self.template)
        self.turn_end = self._turn_end() or _end_of_text(tokenizer)
        template = self.template
        _log_additions(template.source or "", template.default_system_prompt(), template.dated)
        self._verbatim = special_tokens_meant
        self._around: dict[str, list[str]] = {}
        self._appends: dict[tuple[str, ...], bool] = {}
        self._opened: dict[tuple[tuple[str, ...], ...], tuple[Opening, list[Message]]] = {}

    def open(self, messages: Sequence[Message]) -> Opening:
        """Render `messages` with the generation prompt and encode the text."""
        return self._opening(messages)[0]

    def with_tools(self, tools: Sequence[ToolSchema]) -> "TemplateCodec":
        """The codec whose template gets these tools; the codec itself if there are none. Raises
        ValueError if the template does not show tools, calls and results."""
        if not tools:
            return self
        key = json.dumps(list(tools), default=str)
        known = self._with_tools.get(key)
        if known is None:
            if self._tools_fault:
                raise ValueError(self._tools_fault)
            shown = tools if self._verbatim else map_texts(list(tools), self.control.mark)
            options = {**self._options, "tools": list(shown)}
            known = TemplateCodec(self._tokenizer, options, special_tokens_meant=self._verbatim)
            if len(self._with_tools) >= _MOST_TOOLS:
                self._with_tools.clear()
            self._with_tools[key] = known
        return known

    @cached_property
    def _tools_fault(self) -> str:
        """Why the template cannot be used with tools; "" if it can."""
        probing = ChatTemplate(self._tokenizer, {**self._options, "tools": [PROBE_TOOL]})
        what = probing.unshown()
        if not what and self._calls.format is None:
            own = getattr(self._tokenizer, "response_template", None)
            what = "" if own else "calls in a format that is known"
        return f"the chat template does not show {what}; {THESE_DO}" if what else ""

    @cached_property
    def _calls(self) -> CallReader:
        end = self._tokenizer.eos_token_id
        ends = {*self.turn_end, *(() if end is None else (end,))}
        text = ActionText(self._tokenizer, ends)
        tools = self._options.get("tools") or ()
        return CallReader(self._tokenizer, text, self.template.written_call, tools)

    def answer(self, token_ids: Sequence[int], first: int = 0) -> ParsedAnswer:
        """Sampled ids as a message: content, and the calls of tools in the model's own format,
        numbered from `first`."""
        return self._calls(token_ids, first)

    def encode_answer(self, message: Message) -> tuple[int, ...]:
        """Token ids of a text agent's answer, as the template writes it; without end of turn.
        Raises TemplateFailed."""
        if not message.get("tool_calls"):
            return self.encode_action(message["content"])
        asked = Message(role="user", content="Go.")
        before = self.template.render([asked])
        both = self.template.render([asked, self._marked([message])[0]], prompt=False)
        written = both[len(commonprefix([before, both])) :]
        probed = self._probed([asked, message], 0, prompt=False).rpartition(PROBE)[2]
        after = self._after_calls(probed)
        inside = sum(len(token) for token, _ in self.control.leading(after)[:-1])
        ids = self.control.encode(written[: len(written) - len(after) + inside])
        if self.answer(ids).attempted != len(message["tool_calls"]):
            raise TemplateFailed(f"the chat template does not write all calls of {message}")
        return ids

    def bridge(
        self, text: str, messages: Sequence[Message], action_ids: Sequence[int], new: int = 1
    ) -> Bridge:
        """The template's text between an action and the next one. The action is the answer
        `messages[-new - 1]`; the messages after it are new, of any roles.

        `text` is the context as it was rendered before that action. History counts as rewritten if
        the template now renders that context differently, or does not render the action as the
        agent wrote it (ignoring white space around it, and how it writes calls of tools). A
        template that drops earlier `<think>` blocks does so.
        """
        plain = new == 1 and _alternates(messages)
        tail, now = self._appended(text, messages) if plain else (None, "")
        if tail is None:
            marked = self._marked(messages)
            tail, now = self._tail(text, marked, new)
        if tail is None:
            answer = marked[-new - 1]
            return Bridge(None, now, rewriting(text + answer["content"], now, marked, new))
        return Bridge(self.control.encode(self._after_stop(tail, action_ids)), now)

    def _appended(self, text: str, messages: Sequence[Message]) -> tuple[str | None, str]:
        """As `_tail`, without the messages between opening and action; no tail if it has to be
        found in full."""
        first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
        turns = (len(messages) - first) // 2
        opening = messages[:first]
        thinks = END_OF_THOUGHT in text or END_OF_THOUGHT in messages[-2]["content"]
        roles = tuple([message["role"] for message in opening])
        if not turns & (turns - 1) or not self._only_appends(roles, thinks):
            return None, ""
        head, marked = self._opening(opening)
        tail, now = self._tail(head.text, [*marked, *self._marked(messages[-2:])])
        return tail, text + now[len(head.text) :]

    def _only_appends(self, roles: tuple[str, ...], thinks: bool) -> bool:
        """Whether the template appends to conversations that begin with messages of these roles,
        and what it appends depends on opening, answer and new message alone."""
        key = (*roles, str(thinks))
        if key not in self._appends:
            try:
                self._appends[key] = all(
                    self._appends_in(roles, answers) for answers in (_PLAIN, _THOUGHT)[: 1 + thinks]
                )
            except TemplateFailed:
                self._appends[key] = False
        return self._appends[key]

    def _appends_in(self, roles: tuple[str, ...], answers: Sequence[str]) -> bool:
        """The same of a conversation with these answers."""
        messages: list[Message] = [{"role": role, "content": "Go."} for role in roles]
        opening = tuple(messages)
        head = text = self.template.render(opening)
        for turn in range(_TURNS):
            messages.append({"role": "assistant", "content": answers[turn % len(answers)]})
            messages.append({"role": "user", "content": _READ[turn % len(_READ)]})
            tail, now = self._tail(text, messages)
            alone, after = self._tail(head, [*opening, *messages[-2:]])
            if tail is None or tail != alone or now != text + after[len(head) :]:
                return False
            text = now
        return True

    def _tail(self, text: str, messages: Sequence[Message], new: int = 1) -> tuple[str | None, str]:
        """The text after the action `messages[-new - 1]` (None: history was rewritten), and the
        whole conversation as it is rendered now. All messages are marked."""
        now = self.template.render(messages)
        answer = messages[-new - 1]
        action = answer["content"]
        plain = new == 1 and messages[-1]["role"] == "user" and not answer.get("tool_calls")
        around = self._around_message("user") if plain else []
        if around:
            tail = around[1] + messages[-1]["content"] + around[2]
            if len(now) == len(text) + len(action) + len(tail) and now == text + action + tail:
                return tail, now
        return self._probed_tail(text, now, messages, new), now

    def _probed_tail(
        self, text: str, now: str, messages: Sequence[Message], new: int
    ) -> str | None:
        """The text after the action, found by rendering again with a probe as the action, or as the
        arguments of its last call."""
        answer = messages[-new - 1]
        head, probe, tail = self._probed(messages, new).rpartition(PROBE)
        calls = bool(answer.get("tool_calls"))
        tail = self._after_calls(tail) if calls else tail
        if not probe or not now.startswith(text) or not now.endswith(tail):
            return None
        middle = now[len(text) : len(now) - len(tail)]
        content = answer["content"].strip()
        kept = content in middle if calls else head == text and middle.strip() == content
        return tail if kept else None

    def _probed(self, messages: Sequence[Message], new: int, *, prompt: bool = True) -> str:
        """The conversation, rendered with a probe in the answer before the last `new` messages."""
        at = len(messages) - new - 1
        answer = messages[at]
        calls = answer.get("tool_calls")
        probe = Message(role="assistant", content=PROBE)
        if calls:
            function = ToolFunction(name=calls[-1]["function"]["name"], arguments={PROBE: 0})
            probe = {**answer, "tool_calls": [*calls[:-1], {**calls[-1], "function": function}]}
        return self.template.render([*messages[:at], probe, *messages[at + 1 :]], prompt=prompt)

    def _after_calls(self, tail: str) -> str:
        """What the template writes after the calls of an answer, of the text after the arguments of
        the last one: from its end of turn on."""
        closer = self._calls.closer
        if closer:
            return tail.partition(closer)[2]
        token = self.control.first(tail)
        return tail[token:]

    def _around_message(self, role: str) -> list[str]:
        """The text that a template usually writes before and after a message that follows an
        action. It is a guess: callers compare it with the actual rendering."""
        if role not in self._around:
            _, *parts = self.template.parts_around(["user", "assistant", role]) or [""]
            self._around[role] = parts
        return self._around[role]

    def _opening(self, messages: Sequence[Message]) -> tuple[Opening, list[Message]]:
        """`messages` and the generation prompt, rendered and encoded; and the messages, marked.
        The rollouts of a group begin alike."""
        key = tuple([_key(message) for message in messages])
        known = self._opened.get(key)
        if known is None:
            marked = self._marked(messages)
            text = self.template.render(marked)
            known = Opening(self.control.encode(text), text), marked
            if len(self._opened) >= _MOST_OPENINGS:
                self._opened.clear()
            self._opened[key] = known
        return known

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of a text agent's words; special tokens in them count as ordinary text."""
        return self.control.encode(self.control.mark(text, own=True))

    def _after_stop(self, tail: str, action_ids: Sequence[int]) -> str:
        """Drop the end-of-turn tokens at the start of `tail`, up to the one that was sampled."""
        return self.control.without_leading(tail, action_ids[-1]) if action_ids else tail

    def _turn_end(self) -> tuple[int, ...]:
        """The first control token that the template writes after an answer, and white space before
        it."""
        text = self.template.written.after
        start = len(text) - len(text.lstrip())
        closing = self.control.leading(text[start:])
        return self.control.encode(text[:start] + closing[0][0]) if closing else ()

    def _marked(self, messages: Sequence[Message]) -> list[Message]:
        return [_marked(message, self.control, self._verbatim) for message in messages]


Codec = PlainCodec | TemplateCodec
"""Encodes conversations that alternate between observations and actions. `turn_end` has the tokens
with which the agent ends its turn; where no template writes them, the end-of-text token."""


def warn_rewritten(codec: Codec | None) -> None:
    """Warn, once for each template, that the template's rewriting of history began a new row."""
    _warn_rewritten(codec.template.source if isinstance(codec, TemplateCodec) else None)


@lru_cache(maxsize=64)
def _warn_rewritten(template: str | None) -> None:
    logger.warning(
        "The chat template rewrites earlier turns, and each time it does, a new row begins. The "
        "result is exact, but the whole context is read again each time; `template_breaks` and "
        "`rows_per_rollout` in the metrics count it. chat_template='training' (GRPOEnvConfig) "
        "uses TRL's training template, which only appends, if TRL has one for this model."
    )


@lru_cache(maxsize=64)
def _log_additions(template: str, prompt: str, dated: bool) -> None:
    """Log, once for each template, what it adds to prompts by itself."""
    if prompt:
        logger.info("The chat template adds its own system prompt if there is none: %r", prompt)
    if dated:
        logger.info("The chat template writes today's date into prompts.")


def _end_of_text(tokenizer: Tokenizer) -> tuple[int, ...]:
    return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)


def _alternates(messages: Sequence[Message]) -> bool:
    """Whether plain answers and messages of the user take turns after the first answer."""
    first = next(n for n, message in enumerate(messages) if message["role"] == "assistant")
    return (
        all(
            message["role"] == ("user" if number % 2 else "assistant")
            and not message.get("tool_calls")
            for number, message in enumerate(messages[first:])
        )
        and (len(messages) - first) % 2 == 0
    )


def _key(message: Message) -> tuple[str, ...]:
    """What distinguishes a message."""
    plain = (message["role"], message["content"])
    return plain if len(message) == len(plain) else (*plain, json.dumps(message))


def _marked(message: Message, control: ControlTokens, verbatim: bool) -> Message:
    """The message with the control tokens in it marked as ordinary text: in its content, in names
    and in arguments. With `verbatim`, they are kept in all messages but the assistant's."""
    own = message["role"] == "assistant"
    if verbatim and not own:
        return message
    marked = Message(role=message["role"], content=control.mark(message["content"], own))
    if len(message) > len(marked):
        marked = {**map_texts(message, control.mark), **marked}
    return marked


def codec_for(
    tokenizer: Tokenizer,
    template_options: Mapping[str, Any] | None = None,
    *,
    special_tokens_meant: bool = False,
) -> Codec:
    """The codec for a tokenizer.

    `template_options` are extra arguments for its chat template, as `apply_chat_template` takes
    them (`{"enable_thinking": False}`); the key `"chat_template"` replaces the template. Special
    tokens written in a message become ordinary text, so that no text can forge a turn; with
    `special_tokens_meant` this applies to the assistant's messages only.
    """
    options = dict(template_options or {})
    if tokenizer.chat_template or template_source(tokenizer, options):
        return TemplateCodec(tokenizer, options, special_tokens_meant=special_tokens_meant)
    if options:
        logger.warning("This tokenizer has no chat template, so template options have no effect.")
    return PlainCodec(tokenizer, special_tokens_meant=special_tokens_meant)
