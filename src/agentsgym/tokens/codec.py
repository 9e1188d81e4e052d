"""Turning conversations into token ids without ever re-encoding what was sampled.

`PlainCodec` serves tokenizers without a chat template: texts are encoded one by one with
`add_special_tokens=False` and joined. `TemplateCodec` asks the tokenizer's own chat template what
stands between a sampled action and the next one, and notices when the template rewrites history.
A template that renders each message by itself is asked about the newest messages only.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from agentsgym.tokens.control import ControlTokens, written_around
from agentsgym.tokens.locality import is_local, reads_first_message
from agentsgym.tokens.memo import Memo
from agentsgym.tokens.template import PROBE, ChatTemplate, tell_defaults, template_text
from agentsgym.types import Message, Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """The context of a first action: `token_ids`, and the `text` they were encoded from."""

    token_ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Bridge:
    """What follows an action. `delta` is appended; None means that the template rewrote history,
    so that a new row must start from `text`. `text` is the whole context as the template
    renders it now."""

    delta: tuple[int, ...] | None
    text: str


class Codec(Protocol):
    """Encodes conversations that alternate between observations and actions."""

    def open(self, messages: Sequence[Message]) -> Opening: ...

    def bridge(
        self, text: str, messages: Sequence[Message], action_ids: Sequence[int]
    ) -> Bridge: ...

    def encode_action(self, text: str) -> tuple[int, ...]: ...


class PlainCodec:
    """Texts encoded separately and joined, for tokenizers without a chat template."""

    def __init__(self, tokenizer: Tokenizer, *, special_tokens_meant: bool = False) -> None:
        self.control = ControlTokens(tokenizer)
        self._meant = special_tokens_meant

    def open(self, messages: Sequence[Message]) -> Opening:
        """Encode the contents of all messages, joined."""
        return Opening(tuple(i for message in messages for i in self._encode(message)), "")

    def bridge(self, text: str, messages: Sequence[Message], action_ids: Sequence[int]) -> Bridge:
        """Encode the last message, which follows the action."""
        return Bridge(self._encode(messages[-1]), "")

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of a text agent's words; special tokens in them are ordinary text."""
        return self.control.encode(self.control.mark(text, own=True))

    def _encode(self, message: Message) -> tuple[int, ...]:
        return self.control.encode(_marked(message, self.control, self._meant)["content"])


class TemplateCodec:
    """Deltas of the tokenizer's own chat template.

    Openings, encoded texts and, of a template that renders each message by itself, what an action
    and its answer add are remembered: rollouts of a group begin alike and often go on alike.
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
        tell_defaults(self.template)
        self._meant = special_tokens_meant
        self._local = is_local(self.template.text)
        self._first_matters = not self._local or reads_first_message(self.template.text)
        self._around: dict[str, tuple[str, str] | None] = {}
        self._encoded: Memo[str, tuple[int, ...]] = Memo()
        self._opened: Memo[tuple[tuple[str, str], ...], str] = Memo()
        self._turns: Memo[tuple[str, ...], tuple[str, str]] = Memo()

    def open(self, messages: Sequence[Message]) -> Opening:
        """Render `messages` with the generation prompt and encode the text."""
        text = self._opening_text(messages)
        return Opening(self._encode(text), text)

    def bridge(self, text: str, messages: Sequence[Message], action_ids: Sequence[int]) -> Bridge:
        """What the template puts between the action `messages[-2]` and the next action.

        `text` is the context as it was rendered before that action. The history counts as
        rewritten when the template now renders that context differently, or the action other
        than as it was said (surrounding white space apart): a template that drops earlier
        `<think>` blocks does so.
        """
        if self._local and len(messages) > 3:
            turn = self._turn(messages)
            if turn is not None:
                delta = self._encode(self._after_stop(turn[0], action_ids))
                return Bridge(delta, text + turn[1])
        tail, now = self._tail(text, messages)
        if tail is None:
            return Bridge(None, now)
        return Bridge(self._encode(self._after_stop(tail, action_ids)), now)

    def _turn(self, messages: Sequence[Message]) -> tuple[str, str] | None:
        """Of a local template: the tail after the action `messages[-2]`, and the action with it;
        None where the action is rendered other than as it was said."""
        first, said, last = messages[0], messages[-2], messages[-1]
        before = (first["role"], first["content"]) if self._first_matters else ()
        key = (*before, said["role"], said["content"], last["role"], last["content"])
        turn = self._turns.get(key)
        if turn is None:
            head = self._opening_text([first])
            tail, now = self._tail(head, [first, said, last])
            if tail is None:
                return None
            turn = tail, now[len(head) :]
            self._turns.put(key, turn, sum(map(len, (*key, *turn))))
        return turn

    def _tail(self, text: str, messages: Sequence[Message]) -> tuple[str | None, str]:
        """What follows the action `messages[-2]` (None: history was rewritten), and the whole
        conversation as it is rendered now."""
        messages = self._marked(messages)
        now = self.template.render(messages)
        said = messages[-2]["content"]
        around = self._around_message(messages[-1]["role"])
        if around is not None:
            tail = around[0] + messages[-1]["content"] + around[1]
            if len(now) == len(text) + len(said) + len(tail) and now == text + said + tail:
                return tail, now
        return self._probed_tail(text, now, messages), now

    def _probed_tail(self, text: str, now: str, messages: Sequence[Message]) -> str | None:
        """The tail by rendering again with a probe in the action's place."""
        probed = self.template.render(
            [*messages[:-2], {"role": "assistant", "content": PROBE}, messages[-1]]
        )
        head, found, tail = probed.rpartition(PROBE)
        kept = bool(found) and head == text and now.startswith(head) and now.endswith(tail)
        middle = now[len(head) : len(now) - len(tail)] if kept else ""
        return tail if kept and middle.strip() == messages[-2]["content"].strip() else None

    def _around_message(self, role: str) -> tuple[str, str] | None:
        """What a template usually writes before and after a message that follows an action; a
        guess, to be compared with what it does write."""
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

    def _opening_text(self, messages: Sequence[Message]) -> str:
        """`messages` with the generation prompt."""
        key = tuple((message["role"], message["content"]) for message in messages)
        known = self._opened.get(key)
        if known is not None:
            return known
        text = self.template.render(self._marked(messages))
        self._opened.put(key, text, 2 * len(text))
        return text

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of a text agent's words; special tokens in them are ordinary text."""
        return self._encode(self.control.mark(text, own=True))

    def _encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a rendered text, what is marked in it as ordinary text."""
        ids = self._encoded.get(text)
        if ids is None:
            ids = self.control.encode(text)
            self._encoded.put(text, ids, len(text))
        return ids

    def _after_stop(self, tail: str, action_ids: Sequence[int]) -> str:
        """Drop from `tail` the end-of-turn tokens up to the one that the agent sampled itself."""
        return self.control.without_leading(tail, action_ids[-1]) if action_ids else tail

    def _marked(self, messages: Sequence[Message]) -> list[Message]:
        return [_marked(message, self.control, self._meant) for message in messages]


def tell_rewritten(codec: Codec | None) -> None:
    """Warn, once for each template, that a rollout has rows which its template began."""
    _tell_rewritten(codec.template.text if isinstance(codec, TemplateCodec) else None)


@lru_cache(maxsize=64)
def _tell_rewritten(template: str | None) -> None:
    logger.warning(
        "The chat template rewrites what it wrote of earlier turns, so a new row begins where it "
        "does. That is exact, but reads the whole context again each time; `template_breaks` and "
        "`rows_per_rollout` in the metrics count it. chat_template='training' (GRPOEnvConfig) "
        "takes TRL's training template, which only appends, where TRL brings one."
    )


def _marked(message: Message, control: ControlTokens, meant: bool) -> Message:
    """The message with the control tokens marked that its content only spells; with `meant`,
    those that others than the assistant write are control tokens."""
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
    """The codec that fits a tokenizer.

    `template_options` are further arguments of its chat template, as `apply_chat_template` takes
    them (`{"enable_thinking": False}`); `"chat_template"` among them replaces the template. Special
    tokens written in a message are ordinary text, so that nobody forges a turn; with
    `special_tokens_meant` only those that the assistant writes.
    """
    options = dict(template_options or {})
    if tokenizer.chat_template or template_text(tokenizer, options):
        return TemplateCodec(tokenizer, options, special_tokens_meant=special_tokens_meant)
    if options:
        logger.warning("This tokenizer has no chat template; its options change nothing.")
    return PlainCodec(tokenizer, special_tokens_meant=special_tokens_meant)
