"""Encodes conversations as token ids and never re-encodes a sampled token.

`PlainCodec` is for tokenizers without a chat template: each text is encoded separately with
`add_special_tokens=False`, and the ids are joined. `TemplateCodec` finds out which text the chat
template puts between a sampled action and the next one, and detects a template that rewrites
history. If a template renders each message independently, only the newest messages are rendered.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from agentsgym.tokens.control import ControlTokens, written_around
from agentsgym.tokens.locality import is_local, reads_first_message
from agentsgym.tokens.memo import Memo
from agentsgym.tokens.rewriting import rewriting
from agentsgym.tokens.template import PROBE, ChatTemplate, log_defaults, template_text
from agentsgym.types import Message, Tokenizer

logger = logging.getLogger(__name__)


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


class Codec(Protocol):
    """Encodes conversations that alternate between observations and actions."""

    def open(self, messages: Sequence[Message]) -> Opening: ...

    def bridge(
        self, text: str, messages: Sequence[Message], action_ids: Sequence[int]
    ) -> Bridge: ...

    def encode_action(self, text: str) -> tuple[int, ...]: ...

    @property
    def turn_end(self) -> tuple[int, ...]:
        """The tokens with which the agent ends its turn; empty if there are none. Where no template
        writes them, they are the tokenizer's end-of-text token."""
        ...


class PlainCodec:
    """Texts encoded separately and joined, for tokenizers without a chat template."""

    def __init__(self, tokenizer: Tokenizer, *, special_tokens_meant: bool = False) -> None:
        self.control = ControlTokens(tokenizer)
        self.turn_end = _end_of_text(tokenizer)
        self._meant = special_tokens_meant

    def open(self, messages: Sequence[Message]) -> Opening:
        """Encode the contents of all messages and join them."""
        return Opening(tuple(i for message in messages for i in self._encode(message)), "")

    def bridge(self, text: str, messages: Sequence[Message], action_ids: Sequence[int]) -> Bridge:
        """Encode the last message, the one after the action."""
        return Bridge(self._encode(messages[-1]), "")

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of a text agent's words; special tokens in them count as ordinary text."""
        return self.control.encode(self.control.mark(text, own=True))

    def _encode(self, message: Message) -> tuple[int, ...]:
        return self.control.encode(_marked(message, self.control, self._meant)["content"])


class TemplateCodec:
    """Encodes the text that the tokenizer's chat template adds (its deltas).

    Rollouts of a group begin alike and often continue alike, so openings and encoded texts are
    cached; for a template that renders each message independently, also the text of each turn.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template_options: Mapping[str, Any] | None = None,
        *,
        special_tokens_meant: bool = False,
    ) -> None:
        self.template = ChatTemplate(tokenizer, template_options)
        self.written = written_around(self.template.render, PROBE)
        self.control = ControlTokens(tokenizer, self.template.text, self.written)
        self.turn_end = self._turn_end() or _end_of_text(tokenizer)
        log_defaults(self.template)
        self._meant = special_tokens_meant
        self._local = is_local(self.template.text)
        self._first_matters = not self._local or reads_first_message(self.template.text)
        self._around: dict[str, tuple[str, str] | None] = {}
        self._encoded: Memo[str, tuple[int, ...]] = Memo()
        self._opened: Memo[tuple[tuple[str, str], ...], tuple[str, list[Message]]] = Memo()
        self._turns: Memo[tuple[str, ...], tuple[str, str]] = Memo()

    def open(self, messages: Sequence[Message]) -> Opening:
        """Render `messages` with the generation prompt and encode the text."""
        text, _ = self._opening(messages)
        return Opening(self._encode(text), text)

    def bridge(self, text: str, messages: Sequence[Message], action_ids: Sequence[int]) -> Bridge:
        """The template's text between the action `messages[-2]` and the next action.

        `text` is the context as it was rendered before that action. History counts as rewritten if
        the template now renders that context differently, or does not render the action as the
        agent wrote it (ignoring white space around it). A template that drops earlier `<think>`
        blocks does so.
        """
        if self._local and len(messages) > 3:
            turn = self._turn(messages)
            if turn is not None:
                delta = self._encode(self._after_stop(turn[0], action_ids))
                return Bridge(delta, text + turn[1])
        marked = self._marked(messages)
        tail, now = self._tail(text, marked)
        if tail is None:
            return Bridge(None, now, rewriting(text + marked[-2]["content"], now, marked))
        return Bridge(self._encode(self._after_stop(tail, action_ids)), now)

    def _turn(self, messages: Sequence[Message]) -> tuple[str, str] | None:
        """For a local template: the text after the action `messages[-2]`, and the same text with
        the action in front; None if the template does not render the action as it was written."""
        first, said, last = messages[0], messages[-2], messages[-1]
        before = (first["role"], first["content"]) if self._first_matters else ()
        key = (*before, said["role"], said["content"], last["role"], last["content"])
        turn = self._turns.get(key)
        if turn is None:
            head, marked = self._opening([first])
            tail, now = self._tail(head, [*marked, *self._marked([said, last])])
            if tail is None:
                return None
            turn = tail, now[len(head) :]
            self._turns.put(key, turn, sum(map(len, (*key, *turn))))
        return turn

    def _tail(self, text: str, messages: Sequence[Message]) -> tuple[str | None, str]:
        """The text after the action `messages[-2]` (None: history was rewritten), and the whole
        conversation as it is rendered now. All messages are marked."""
        now = self.template.render(messages)
        said = messages[-2]["content"]
        around = self._around_message(messages[-1]["role"])
        if around is not None:
            tail = around[0] + messages[-1]["content"] + around[1]
            if len(now) == len(text) + len(said) + len(tail) and now == text + said + tail:
                return tail, now
        return self._probed_tail(text, now, messages), now

    def _probed_tail(self, text: str, now: str, messages: Sequence[Message]) -> str | None:
        """The text after the action, found by rendering again with a probe as the action."""
        probed = self.template.render(
            [*messages[:-2], {"role": "assistant", "content": PROBE}, messages[-1]]
        )
        head, found, tail = probed.rpartition(PROBE)
        kept = bool(found) and head == text and now.startswith(head) and now.endswith(tail)
        middle = now[len(head) : len(now) - len(tail)] if kept else ""
        return tail if kept and middle.strip() == messages[-2]["content"].strip() else None

    def _around_message(self, role: str) -> tuple[str, str] | None:
        """The text that a template usually writes before and after a message that follows an
        action. It is a guess: callers compare it with the actual rendering."""
        if role not in self._around:
            said: Message = {"role": "assistant", "content": PROBE}
            try:
                rendered = self.template.render(
                    [{"role": "user", "content": "."}, said, {"role": role, "content": PROBE}]
                )
            except Exception:  # a template may refuse any conversation with any exception
                rendered = ""
            parts = rendered.split(PROBE)
            self._around[role] = (parts[1], parts[2]) if len(parts) == 3 else None
        return self._around[role]

    def _opening(self, messages: Sequence[Message]) -> tuple[str, list[Message]]:
        """`messages` and the generation prompt, rendered; and the messages, marked."""
        key = tuple([(message["role"], message["content"]) for message in messages])
        known = self._opened.get(key)
        if known is None:
            marked = self._marked(messages)
            known = self.template.render(marked), marked
            self._opened.put(key, known, 3 * len(known[0]))
        return known

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of a text agent's words; special tokens in them count as ordinary text."""
        return self._encode(self.control.mark(text, own=True))

    def _encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a rendered text; its marked parts are encoded as ordinary text."""
        ids = self._encoded.get(text)
        if ids is None:
            ids = self.control.encode(text)
            self._encoded.put(text, ids, len(text))
        return ids

    def _after_stop(self, tail: str, action_ids: Sequence[int]) -> str:
        """Drop the end-of-turn tokens at the start of `tail`, up to the one that was sampled."""
        return self.control.without_leading(tail, action_ids[-1]) if action_ids else tail

    def _turn_end(self) -> tuple[int, ...]:
        """The first control token that the template writes after an answer, and white space before
        it."""
        text = self.written.after
        start = len(text) - len(text.lstrip())
        first = self.control.leading_tokens(text[start:])[:1]
        return self.control.encode(text[:start] + first[0]) if first else ()

    def _marked(self, messages: Sequence[Message]) -> list[Message]:
        return [_marked(message, self.control, self._meant) for message in messages]


def tell_rewritten(codec: Codec | None) -> None:
    """Warn, once for each template, that the template's rewriting of history began a new row."""
    _tell_rewritten(codec.template.text if isinstance(codec, TemplateCodec) else None)


@lru_cache(maxsize=64)
def _tell_rewritten(template: str | None) -> None:
    logger.warning(
        "The chat template rewrites earlier turns, and each time it does, a new row begins. The "
        "result is exact, but the whole context is read again each time; `template_breaks` and "
        "`rows_per_rollout` in the metrics count it. chat_template='training' (GRPOEnvConfig) "
        "uses TRL's training template, which only appends, if TRL has one for this model."
    )


def _end_of_text(tokenizer: Tokenizer) -> tuple[int, ...]:
    return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)


def _marked(message: Message, control: ControlTokens, meant: bool) -> Message:
    """The message with the control tokens in its content marked as ordinary text. With `meant`,
    control tokens are kept in all messages but the assistant's."""
    own = message["role"] == "assistant"
    if meant and not own:
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
    if tokenizer.chat_template or template_text(tokenizer, options):
        return TemplateCodec(tokenizer, options, special_tokens_meant=special_tokens_meant)
    if options:
        logger.warning("This tokenizer has no chat template, so template options have no effect.")
    return PlainCodec(tokenizer, special_tokens_meant=special_tokens_meant)
