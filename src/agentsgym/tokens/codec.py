"""Turning conversations into token ids without ever re-encoding what was sampled.

`PlainCodec` serves tokenizers without a chat template: texts are encoded one by one with
`add_special_tokens=False` and joined. `TemplateCodec` asks the tokenizer's own chat template what
stands between a sampled action and the next one, and notices when the template rewrites history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentsgym.types import Message, Tokenizer

# Stands for the action when a template is asked what comes after it. Plain letters, so that no
# template trims or escapes it.
_PROBE = "agentsgymprobe"


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

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def open(self, messages: Sequence[Message]) -> Opening:
        """Encode the contents of all messages, joined."""
        ids = [self.encode_action(message["content"]) for message in messages]
        return Opening(tuple(i for part in ids for i in part), "")

    def bridge(self, text: str, messages: Sequence[Message], action_ids: Sequence[int]) -> Bridge:
        """Encode the last message, which follows the action."""
        return Bridge(self.encode_action(messages[-1]["content"]), "")

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of a text agent's words."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))


class TemplateCodec:
    """Deltas of the tokenizer's own chat template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)

    def open(self, messages: Sequence[Message]) -> Opening:
        """Render `messages` with the generation prompt and encode the text."""
        text = self._render(messages)
        return Opening(self.encode_action(text), text)

    def bridge(self, text: str, messages: Sequence[Message], action_ids: Sequence[int]) -> Bridge:
        """What the template puts between the action `messages[-2]` and the next action.

        `text` is the context as it was rendered before that action. The history counts as
        rewritten when the template now renders that context differently, or the action other
        than as it was said (surrounding white space apart): a template that drops earlier
        `<think>` blocks does so.
        """
        now = self._render(messages)
        said = messages[-2]["content"]
        probed = self._render(
            [*messages[:-2], {"role": "assistant", "content": _PROBE}, messages[-1]]
        )
        head, found, tail = probed.rpartition(_PROBE)
        kept = bool(found) and head == text and now.startswith(head) and now.endswith(tail)
        middle = now[len(head) : len(now) - len(tail)] if kept else ""
        if not kept or middle.strip() != said.strip():
            return Bridge(None, now)
        return Bridge(self.encode_action(self._after_stop(tail, action_ids)), now)

    def encode_action(self, text: str) -> tuple[int, ...]:
        """Token ids of `text`; special tokens written in it become their ids."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _after_stop(self, tail: str, action_ids: Sequence[int]) -> str:
        """Drop from `tail` the end-of-turn token that the agent already sampled itself."""
        if action_ids and action_ids[-1] in self._special:
            return tail.removeprefix(self._tokenizer.decode([action_ids[-1]]))
        return tail

    def _render(self, messages: Sequence[Message]) -> str:
        rendered: Any = self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        return str(rendered)


def codec_for(tokenizer: Tokenizer) -> Codec:
    """The codec that fits a tokenizer."""
    return TemplateCodec(tokenizer) if tokenizer.chat_template else PlainCodec(tokenizer)
