"""From the ids that an agent sampled to the text of its action, and back.

Training uses the ids. The text leaves out special tokens and the parts that they mark as hidden:
of an answer in channels (gpt-oss, Gemma 4) only the final channel remains, "" if there is none.
Thoughts between ordinary tokens (`<think>`) stay in the text, where chat templates look for them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentsgym.tokens.control import added_tokens
from agentsgym.types import Tokenizer

# Messages with a header, `<|channel|>final<|message|>yes<|end|>`: tokens that may end the text.
MESSAGE = "<|message|>"
CHANNEL = "<|channel|>"
_BOUNDARIES = ("<|start|>", "<|end|>", "<|return|>", "<|call|>", "<|eom|>", "<|eot|>")
# Thoughts in a block between two special tokens.
BLOCKS = (
    ("<|channel>", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
)
_OPEN, _CLOSE = "<think>", "</think>"


class ActionText:
    """Decodes sampled ids. `end_ids` end an action."""

    def __init__(self, tokenizer: Any, end_ids: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        known = dict(added_tokens(tokenizer))
        added = {number: text for text, (number, _) in known.items()}
        self._special = {number for number, special in known.values() if special}
        self._ends = {*end_ids} & added.keys()
        self._blocks = {
            known[first][0]: known[last][0]
            for first, last in BLOCKS
            if first in known and last in known
        }
        self._message = known.get(MESSAGE, (-1,))[0]
        self._channel = known.get(CHANNEL, (-1,))[0]
        self._boundaries = {known[text][0] for text in _BOUNDARIES if text in known}
        self._structure = self._special | {*self._blocks, self._message}

    def __call__(self, token_ids: Sequence[int], ends: Sequence[int] = ()) -> str:
        """The action's text; `ends` are more ids that end it."""
        ids = self.without_end(token_ids, ends)
        if self._structure.isdisjoint(ids):
            return self._decode(ids)
        parsed = self._parsed(ids)
        return self._spoken(ids) if parsed is None else parsed

    def without_end(self, token_ids: Sequence[int], ends: Sequence[int] = ()) -> list[int]:
        """The ids without those at their end that end an action."""
        ids = list(token_ids)
        while ids and (ids[-1] in self._ends or ids[-1] in ends):
            ids.pop()
        return ids

    def _parsed(self, ids: list[int]) -> str | None:
        """The content according to the tokenizer's own response template; None if there is no
        template, if it fails, or if it finds more than thoughts and content."""
        if getattr(self._tokenizer, "response_template", None) is None:
            return None
        try:
            message = self._tokenizer.parse_response(ids, prefix="")
        except Exception:  # a model's answer may break any parser
            return None
        content = message.get("content", "")
        return content if isinstance(content, str) and "tool_calls" not in message else None

    def _spoken(self, ids: list[int]) -> str:
        if self._message in ids:
            finals = [body for header, body in self.messages(ids) if _is_final(header)]
            return self._decode(finals[-1]) if finals else ""
        if self._channel in ids:
            return ""  # the answer was cut off in its header
        return self._decode(list(self._outside_blocks(ids)))

    def messages(self, ids: list[int]) -> Iterator[tuple[str, list[int]]]:
        """Header and text of each message in `ids`."""
        header: list[int] = []
        body: list[int] | None = None
        for number in ids:
            if number == self._message and body is None:
                body = []
            elif number in self._boundaries or (number == self._channel and body is not None):
                if body is not None:
                    yield self._tokenizer.decode(header), body
                header, body = [number], None
            else:
                (header if body is None else body).append(number)
        if body is not None:
            yield self._tokenizer.decode(header), body

    def _outside_blocks(self, ids: list[int]) -> Iterator[int]:
        closing: int | None = None
        for number in ids:
            if closing is None:
                closing = self._blocks.get(number)
                if closing is None:
                    yield number
            elif number == closing:
                closing = None

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text


def _is_final(header: str) -> bool:
    """Whether a message's header marks it as the answer for the user."""
    before, channel, name = header.partition(CHANNEL)
    if channel:
        return name.strip().startswith("final")
    return "to=" not in before or "to=user" in before


def thoughts_are_off(prompt: str) -> bool:
    """Whether the end of a prompt, the generation prompt, already holds an empty thought."""
    return prompt.rstrip().endswith((_CLOSE, *(close for _, close in BLOCKS)))


def sampled_answer(tokenizer: Tokenizer, prompt: str, answer: str, thought: str = "") -> str:
    """What a model of this tokenizer samples after `prompt` to give `answer`, with a thought before
    it if `thought` is not empty; without the end of turn.

    Of gpt-oss these are messages in channels, of Gemma 4 a block between two special tokens, of
    most others a block `<think>`, which the generation prompt may have opened.
    """
    known = {text for text, _ in added_tokens(tokenizer)}
    if MESSAGE in known:
        return _in_messages(answer, thought, CHANNEL in known)
    if prompt.rstrip().endswith(_OPEN):
        return f"{thought}\n{_CLOSE}\n\n{answer}"
    if not thought:
        return answer
    for first, last in BLOCKS:
        if first in known and last in known:
            head = "thought\n" if first == "<|channel>" else ""
            return f"{first}{head}{thought}{last}{answer}"
    return f"{_OPEN}\n{thought}\n{_CLOSE}\n\n{answer}"


def _in_messages(answer: str, thought: str, channels: bool) -> str:
    """A message with the thought and one with the answer, in channels or to recipients."""
    inner, outer = (
        (f"{CHANNEL}analysis", f"{CHANNEL}final") if channels else (" to=self", " to=user")
    )
    before = f"{inner}{MESSAGE}{thought}<|end|><|start|>assistant" if thought else ""
    return f"{before}{outer}{MESSAGE}{answer}"
