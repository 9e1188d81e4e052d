"""The transcript of one rollout: rows of ids and log-probabilities that only grow.

Invariant: the tokens before a span are exactly the context that the agent saw when it sampled the
span. If a chat template rewrites history, a new row begins; `begins` says so, and
`rewrites` what changed.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentsgym.tokens.codec import Codec
from agentsgym.types import GenerationResult, Message, Row, StepSpan


@dataclass(slots=True)
class DraftRow:
    """A row that is still growing: int32 ids, and float32 log-probabilities (0.0 on context)."""

    begins: str
    rewrites: str = ""
    token_ids: "array[int]" = field(default_factory=lambda: array("i"))
    logprobs: "array[float]" = field(default_factory=lambda: array("f"))
    spans: list[StepSpan] = field(default_factory=list)
    sampled: bool = True

    def observe(self, ids: Sequence[int]) -> None:
        """Append context."""
        self.token_ids.extend(ids)
        self.logprobs.frombytes(bytes(4 * len(ids)))

    def act(self, ids: Sequence[int], logprobs: Sequence[float], key: tuple[int, int]) -> StepSpan:
        """Append the action of the step `key`."""
        start = len(self.token_ids)
        self.token_ids.extend(ids)
        self.logprobs.extend(logprobs)
        span = StepSpan(*key, start, len(self.token_ids))
        self.spans.append(span)
        return span

    def cut(self) -> None:
        """Drop the context after the last action."""
        del self.token_ids[self.spans[-1].stop :]
        del self.logprobs[self.spans[-1].stop :]

    def finished(self, session_id: str, group: int, rollout: int, spans: Iterable[StepSpan]) -> Row:
        """The row of rollout number `rollout` of its group; `spans` are those whose steps count."""
        return Row(
            session_id=session_id,
            group=group,
            rollout=rollout,
            token_ids=np.array(self.token_ids, np.int32),
            logprobs=np.array(self.logprobs, np.float32),
            spans=tuple(spans),
            begins=self.begins,
            sampled=self.sampled,
            rewrites=self.rewrites,
        )


class Transcript:
    """Records a rollout as rows of tokens. With `codec=None` (no tokenizer) it records none.

    `_text` is the context as text, and `_before` the text before the last observation.
    """

    def __init__(self, codec: Codec | None) -> None:
        self._codec = codec
        self._text = ""
        self._before = ""
        self._last_action: tuple[int, ...] | None = None
        self._begins = "episode"
        self._row = DraftRow("")
        self.rows: list[DraftRow] = []

    @property
    def codec(self) -> Codec | None:
        """The codec of the running conversation, with its tools."""
        return self._codec

    @property
    def context(self) -> Sequence[int]:
        """The ids that the next action is conditioned on."""
        return self._row.token_ids

    def restart(self, begins: str = "episode") -> None:
        """Begin a new row with the next observation, for the reason `begins`; the row gets no
        earlier history."""
        self._last_action, self._begins = None, begins

    def observe(self, messages: Sequence[Message], new: int = 1) -> None:
        """Extend the context to `messages`, of which only the last `new` ones are new."""
        if self._codec is None:
            return
        self._before = self._text
        if self._last_action is None:
            self._open(messages, self._begins)
            return
        bridge = self._codec.bridge(self._text, messages, self._last_action, new)
        if bridge.delta is None:
            self._open(messages, "template", bridge.rewrites)
        else:
            self._row.observe(bridge.delta)
            self._text = bridge.text

    def withdraw(self) -> None:
        """Remove the last observation because it gets no answer. A row ends with an action; a row
        without one is removed."""
        self._text = self._before
        if self._row.spans:
            self._row.cut()
        elif self.rows:
            self.rows.pop()  # a row without an action is the last one
            self._row = self.rows[-1] if self.rows else DraftRow("")

    def ids_of(self, action: GenerationResult, message: Message | None = None) -> tuple[int, ...]:
        """An action's token ids: its sampled ids, or the encoded text of a text agent, which calls
        tools if its `message` says so."""
        if action.token_ids is not None:
            return action.token_ids
        if self._codec is None:
            return ()
        if message is not None and message.get("tool_calls"):
            return self._codec.encode_answer(message)
        return self._codec.encode_action(action.text)

    def act(
        self, action: GenerationResult, episode: int, step: int, message: Message | None = None
    ) -> StepSpan | None:
        """Append an action's tokens: its sampled ids, or the encoded text of a text agent;
        `message` is the action as its conversation has it."""
        if self._codec is None:
            return None
        ids = self.ids_of(action, message)
        if action.token_ids is None:
            self._row.sampled = False
        logprobs = action.logprobs if action.logprobs is not None else (0.0,) * len(ids)
        self._last_action = ids
        return self._row.act(ids, logprobs, (episode, step))

    def _open(self, messages: Sequence[Message], begins: str, rewrites: str = "") -> None:
        assert self._codec is not None
        opening = self._codec.open(messages)
        self._row = DraftRow(begins, rewrites)
        self._row.observe(opening.token_ids)
        self.rows.append(self._row)
        self._text = opening.text
