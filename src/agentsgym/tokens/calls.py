"""The transcript of a program's calls: which row each call continues, and why another one begins.

Each call comes with a whole conversation. If it is an earlier one, the sampled answer to that and
what the program added, the call extends the row of that answer with the template's text for the new
messages. Every other call begins a row, and `Row.begins` says why (`REASONS`; "episode" for the
first one, "template" where the chat template rewrote what it had written). A branch begins with the
recorded tokens up to where it leaves its row, and a retry with the same context. No sampled token
is encoded again, and none carries loss in more than one row.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentsgym.tokens.codec import Codec
from agentsgym.tokens.folding import folded
from agentsgym.tokens.tool_calls import ParsedAnswer
from agentsgym.tokens.transcript import DraftRow, Transcript
from agentsgym.types import GenerationResult, Message, ModelCall, StepSpan
from agentsgym.types.records import count_calls

REASONS = {
    "history": "earlier turns were changed or dropped",
    "tools": "other tools were offered",
    "conversation": "another conversation began, as a sub-agent's",
    "branch": "an earlier answer was continued a second time",
    "retry": "the same conversation was sent again",
}
"""Why a program's call continues no row (`Row.begins`), in words."""

_Key = bytes


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answered call: the answer's place in its row, the context as text before it, and its
    ids."""

    row: DraftRow
    span: StepSpan
    text: str
    token_ids: tuple[int, ...]


class CallTranscript(Transcript):
    """Records conversations that grow by an observation (`observe`), and calls (`call`)."""

    def __init__(self, codec: Codec | None) -> None:
        super().__init__(codec)
        self._without_tools = codec
        self._forget()

    def restart(self, begins: str = "episode") -> None:
        """Begin a new row with the next observation or call, which continues no earlier one."""
        super().restart(begins)
        self._forget()

    def _forget(self) -> None:
        self._call: _Key | None = None
        self._prompts: dict[_Key, _Answered] = {}
        self._answers: dict[_Key, _Answered] = {}
        self._openings: dict[_Key, set[_Key]] = {}

    def call(self, call: ModelCall) -> ModelCall:
        """Bring the context to the conversation of a call, and return it as the chat template takes
        it (`folded`).

        Raises ValueError if the chat template cannot show its messages or tools; then it is as if
        there had been no call.
        """
        if self._without_tools is None:
            return call
        self._codec = self._without_tools.with_tools(call.tools)
        with folded(self._codec, call.messages) as messages:
            call = replace(call, messages=tuple(messages))
            keys, before = call_keys(call), self._text
            self._extend(call, keys)
        self._before = before
        self._call = keys[-1]
        self._openings.setdefault(_opening(call.messages), set()).add(keys[0])
        return call

    def _extend(self, call: ModelCall, keys: Sequence[_Key]) -> None:
        """Go on with the row that the call continues, or begin one."""
        if earlier := self._prompts.get(keys[-1]):
            self._copy(earlier.row, earlier.span.start, "retry")
            self._text = earlier.text
            return
        last = len(call.messages) - 1
        for at in reversed(range(last)):
            if keys[at + 1] in self._answers:
                self._continue(self._answers[keys[at + 1]], call.messages, last - at)
                return
        self._open(call.messages, self._reason(call, keys[0]))

    def answer(self, action: GenerationResult, call: ModelCall) -> ParsedAnswer:
        """The answer to `call` as the program gets it."""
        if action.token_ids is None or self._codec is None:
            return ParsedAnswer({"role": "assistant", "content": action.text})
        return self._codec.answer(action.token_ids, count_calls(call.messages))

    def act(
        self, action: GenerationResult, episode: int, step: int, message: Message | None = None
    ) -> StepSpan | None:
        """Append an action's tokens; `message` is the answer as the program gets it."""
        span = super().act(action, episode, step, message)
        if span is not None and self._call is not None and message is not None:
            answered = _Answered(self._row, span, self._text, self._last_action or ())
            self._prompts[self._call] = answered
            self._answers[message_key(self._call, message)] = answered
        return span

    def _reason(self, call: ModelCall, tools: _Key) -> str:
        """Why a row begins for a call that continues none."""
        if self._call is None:
            return "episode"
        before = self._openings.get(_opening(call.messages))
        if not before:
            return "conversation"
        return "history" if tools in before else "tools"

    def _continue(self, earlier: _Answered, messages: Sequence[Message], new: int) -> None:
        """Go on after an earlier answer with the last `new` messages."""
        assert self._codec is not None
        bridge = self._codec.bridge(earlier.text, messages, earlier.token_ids, new)
        if bridge.delta is None:
            self._open(messages, "template", bridge.rewrites)
            return
        if len(earlier.row.token_ids) == earlier.span.stop:
            self._row = earlier.row
        else:
            self._copy(earlier.row, earlier.span.stop, "branch")
        self._row.observe(bridge.delta)
        self._text = bridge.text

    def _copy(self, row: DraftRow, stop: int, begins: str) -> None:
        """Begin a row with the first `stop` tokens of another one as its context."""
        self._row = DraftRow(begins, sampled=row.sampled)
        self._row.observe(row.token_ids[:stop])
        self.rows.append(self._row)


def call_keys(call: ModelCall) -> list[_Key]:
    """A key for the tools, and one for each beginning of the conversation with these tools."""
    keys = [_key(b"", list(call.tools))]
    for message in call.messages:
        keys.append(message_key(keys[-1], message))
    return keys


def _opening(messages: Sequence[Message]) -> _Key:
    """A key for the messages up to the first of the user."""
    key = b""
    for message in messages:
        key = _key(key, message)
        if message["role"] == "user":
            break
    return key


def message_key(before: _Key, message: Message) -> _Key:
    """A key for a conversation and its next message. Programs strip answers, so white space around
    one does not count."""
    if message["role"] == "assistant":
        message = {**message, "content": message["content"].strip()}
    return _key(before, message)


def _key(before: _Key, value: Any) -> _Key:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(before + text.encode(), digest_size=16).digest()
