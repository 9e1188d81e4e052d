"""What a codec returns, and the codec of tokenizers without a chat template: each text is encoded
separately with `add_special_tokens=False`, and the ids are joined."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentsgym.tokens.control import ControlTokens
from agentsgym.tokens.speech import ActionText
from agentsgym.tokens.tool_formats import FAMILIES
from agentsgym.types import Message, Tokenizer, ToolSchema

THESE_DO = f"templates of these families can be used with tools: {FAMILIES}"
NO_TEMPLATE = f"a tokenizer without a chat template has no tool calls; {THESE_DO}"


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


class Marking:
    """What codecs do with control tokens that texts spell: they are ordinary text, but with
    `_verbatim` in the messages of all roles but the assistant's."""

    control: ControlTokens
    _verbatim: bool

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of a text agent's words; special tokens in them count as ordinary text."""
        return self.control.encode(self.control.mark(text, own=True))

    def _marked(self, message: Message) -> Message:
        """The message with the control tokens in its content, names and arguments marked."""
        own = message.role == "assistant"
        if self._verbatim and not own:
            return message
        content = self.control.mark(message.content, own)
        if len(message) == 2:
            return message if content is message.content else Message(message.role, content)
        texts = self.control.mark_texts(message.to_dict())
        return Message.of({**texts, "role": message.role, "content": content})


class PlainCodec(Marking):
    """Texts encoded separately and joined, for tokenizers without a chat template."""

    call_families = ""

    def __init__(self, tokenizer: Tokenizer, *, special_tokens_meant: bool = False) -> None:
        self.control = ControlTokens(tokenizer)
        self.ends = self.turn_end = end_of_text(tokenizer)
        self._text = ActionText(tokenizer, self.turn_end)
        self._verbatim = special_tokens_meant
        self._begins = _beginning(tokenizer)

    def open(self, messages: Sequence[Message]) -> Opening:
        """Encode the contents of all messages and join them, after what the tokenizer begins texts
        with."""
        ids = self._joined(messages)
        begun = ids[: len(self._begins)] == self._begins
        return Opening(ids if begun else self._begins + ids, "")

    def bridge(
        self,
        text: str,
        messages: Sequence[Message],
        action_ids: Sequence[int],
        new: int = 1,
    ) -> Bridge:
        """Encode the last `new` messages, those after the action."""
        return Bridge(self._joined(messages[len(messages) - new :]), "")

    def encode_answer(self, message: Message, *, ended: bool = False) -> tuple[int, ...]:
        """Token ids of a text agent's answer, with the end of its turn if `ended`. Raises
        ValueError if it calls tools."""
        if message.tool_calls:
            raise ValueError(NO_TEMPLATE)
        return self.encode_action(message["content"]) + (self.turn_end if ended else ())

    def with_tools(self, tools: Sequence[ToolSchema]) -> "PlainCodec":
        """The codec itself. Raises ValueError if there are tools."""
        if tools:
            raise ValueError(NO_TEMPLATE)
        return self

    def answer(self, token_ids: Sequence[int], first: int = 0) -> tuple[Message, int]:
        """Sampled ids as a message, which calls no tools."""
        return Message("assistant", self._text(token_ids)), 0

    def _joined(self, messages: Sequence[Message]) -> tuple[int, ...]:
        texts = (self._marked(message).content for message in messages)
        return tuple(number for text in texts for number in self.control.encode(text))


def _beginning(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids that a tokenizer puts before a text."""
    bare = tokenizer.encode("a", add_special_tokens=False)
    whole = tokenizer.encode("a")
    places = (at for at in range(len(whole)) if whole[at : at + len(bare)] == bare)
    return tuple(whole[: next(places, 0)])


def end_of_text(tokenizer: Tokenizer) -> tuple[int, ...]:
    return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)


def alternates(messages: Sequence[Message]) -> bool:
    """Whether plain answers and messages of the user take turns after the first answer."""
    roles = ("assistant", "user")
    first = next((n for n, one in enumerate(messages) if one.role == roles[0]), len(messages))
    return (len(messages) - first) % 2 == 0 and all(
        message.role == roles[number % 2] and not message.tool_calls
        for number, message in enumerate(messages[first:])
    )


def message_key(message: Message) -> tuple[str, ...]:
    """What distinguishes a message."""
    plain = (message.role, message.content)
    return plain if len(message) == len(plain) else (*plain, json.dumps(message.to_dict()))
