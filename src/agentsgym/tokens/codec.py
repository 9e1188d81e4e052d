"""Encodes conversations as token ids and never re-encodes a sampled token.

`PlainCodec` is for tokenizers without a chat template: each text is encoded separately with
`add_special_tokens=False`, and the ids are joined. `TemplateCodec` finds out which text the chat
template puts between a sampled action and the next one, and detects a template that rewrites
history.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentsgym.tokens.control import ControlTokens
from agentsgym.tokens.template import (
    END_OF_THOUGHT,
    PROBE,
    ChatTemplate,
    TemplateFailed,
    rewriting,
    template_source,
)
from agentsgym.types import Message, Tokenizer, ToolSchema

logger = logging.getLogger(__name__)

_MOST_OPENINGS = 1024
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
        self._verbatim = special_tokens_meant

    def open(self, messages: Sequence[Message]) -> Opening:
        """Encode the contents of all messages and join them."""
        return Opening(tuple(i for message in messages for i in self._encode(message)), "")

    def with_tools(self, tools: Sequence[ToolSchema]) -> "PlainCodec":
        """This codec; raises ValueError if there are tools, which no template would show."""
        if tools:
            raise ValueError("a tokenizer without a chat template can't show tools to the model")
        return self

    def bridge(
        self, text: str, messages: Sequence[Message], action_ids: Sequence[int], new: int = 1
    ) -> Bridge:
        """Encode the last `new` messages, those after the action."""
        return Bridge(tuple(i for message in messages[-new:] for i in self._encode(message)), "")

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of a text agent's words; special tokens in them count as ordinary text."""
        return self.control.encode(self.control.mark(text, own=True))

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
        self.template = ChatTemplate(tokenizer, template_options)
        self.control = ControlTokens(tokenizer, self.template)
        self.turn_end = self._turn_end() or _end_of_text(tokenizer)
        template = self.template
        _log_additions(template.source or "", template.default_system_prompt(), template.dated)
        self._verbatim = special_tokens_meant
        self._around: dict[str, list[str]] = {}
        self._appends: dict[tuple[str, ...], bool] = {}
        self._opened: dict[tuple[tuple[str, str], ...], tuple[Opening, list[Message]]] = {}

    def open(self, messages: Sequence[Message]) -> Opening:
        """Render `messages` with the generation prompt and encode the text."""
        return self._opening(messages)[0]

    def with_tools(self, tools: Sequence[ToolSchema]) -> "TemplateCodec":
        """This codec, for conversations without tools."""
        if tools:
            raise ValueError("tools are not supported yet")
        return self

    def bridge(
        self, text: str, messages: Sequence[Message], action_ids: Sequence[int], new: int = 1
    ) -> Bridge:
        """The template's text between the action `messages[-2]` and the next action.

        `text` is the context as it was rendered before that action. History counts as rewritten if
        the template now renders that context differently, or does not render the action as the
        agent wrote it (ignoring white space around it). A template that drops earlier `<think>`
        blocks does so.
        """
        if new != 1:
            return Bridge(None, self.template.render(self._marked(messages)), "earlier")
        tail, now = self._appended(text, messages)
        if tail is None:
            marked = self._marked(messages)
            tail, now = self._tail(text, marked)
        if tail is None:
            return Bridge(None, now, rewriting(text + marked[-2]["content"], now, marked))
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

    def _tail(self, text: str, messages: Sequence[Message]) -> tuple[str | None, str]:
        """The text after the action `messages[-2]` (None: history was rewritten), and the whole
        conversation as it is rendered now. All messages are marked."""
        now = self.template.render(messages)
        action = messages[-2]["content"]
        around = self._around_message(messages[-1]["role"])
        if around:
            tail = around[1] + messages[-1]["content"] + around[2]
            if len(now) == len(text) + len(action) + len(tail) and now == text + action + tail:
                return tail, now
        return self._probed_tail(text, now, messages), now

    def _probed_tail(self, text: str, now: str, messages: Sequence[Message]) -> str | None:
        """The text after the action, found by rendering again with a probe as the action."""
        probed = self.template.render(
            [*messages[:-2], {"role": "assistant", "content": PROBE}, messages[-1]]
        )
        head, probe, tail = probed.rpartition(PROBE)
        kept = bool(probe) and head == text and now.startswith(head) and now.endswith(tail)
        middle = now[len(head) : len(now) - len(tail)] if kept else ""
        return tail if kept and middle.strip() == messages[-2]["content"].strip() else None

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
        key = tuple([(message["role"], message["content"]) for message in messages])
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


def _marked(message: Message, control: ControlTokens, verbatim: bool) -> Message:
    """The message with the control tokens in its content marked as ordinary text. With `verbatim`,
    control tokens are kept in all messages but the assistant's."""
    own = message["role"] == "assistant"
    if verbatim and not own:
        return message
    return {"role": message["role"], "content": control.mark(message["content"], own)}


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
