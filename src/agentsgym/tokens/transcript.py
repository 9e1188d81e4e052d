"""The transcript of one rollout: rows of ids, mask and logprobs that only grow.

Invariant: the tokens before a span are exactly the context that the agent saw when it sampled the
span. If a chat template rewrites history, a new row begins; `begins` says so, and
`rewrites` what changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentsgym.tokens.codec import Codec
from agentsgym.types import GenerationResult, Message, StepSpan


@dataclass(slots=True)
class DraftRow:
    """A row that is still growing; all lists have one entry per token."""

    begins: str
    rewrites: str = ""
    token_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[StepSpan] = field(default_factory=list)
    sampled: bool = True

    def extend(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> None:
        """Append tokens: an action if `logprobs` are given, otherwise context."""
        self.token_ids.extend(ids)
        self.mask.extend([0 if logprobs is None else 1] * len(ids))
        self.logprobs.extend([0.0] * len(ids) if logprobs is None else logprobs)

    def cut(self, length: int) -> None:
        """Drop all tokens from position `length` on."""
        for values in (self.token_ids, self.mask, self.logprobs):
            del values[length:]


class Transcript:
    """Records a rollout as rows of tokens. With `codec=None` (no tokenizer) it records none."""

    def __init__(self, codec: Codec | None) -> None:
        self._codec = codec
        self._text = ""
        self._text_before = ""
        self._last_action: tuple[int, ...] | None = None
        self.rows: list[DraftRow] = []

    @property
    def context(self) -> Sequence[int]:
        """The ids that the next action is conditioned on."""
        return self.rows[-1].token_ids if self.rows else ()

    def restart(self) -> None:
        """Begin a new row with the next observation; the row gets no earlier history."""
        self._last_action = None

    def observe(self, messages: Sequence[Message]) -> None:
        """Extend the context to `messages`, of which only the last one is new."""
        if self._codec is None:
            return
        self._text_before = self._text
        if self._last_action is None:
            self._open(messages, "episode")
            return
        bridge = self._codec.bridge(self._text, messages, self._last_action)
        if bridge.delta is None:
            self._open(messages, "template", bridge.rewrites)
        else:
            self.rows[-1].extend(bridge.delta)
            self._text = bridge.text

    def withdraw(self) -> None:
        """Remove the last observation because it gets no answer. A row ends with an action; a row
        without one is removed."""
        self._text = self._text_before
        if self.rows and not self.rows[-1].spans:
            self.rows.pop()
        elif self.rows:
            self.rows[-1].cut(self.rows[-1].spans[-1].stop)

    def ids_of(self, action: GenerationResult) -> tuple[int, ...]:
        """An action's token ids: its sampled ids, or its encoded text."""
        if action.token_ids is not None:
            return action.token_ids
        return () if self._codec is None else self._codec.encode_action(action.text)

    def act(self, action: GenerationResult, episode: int, step: int) -> StepSpan | None:
        """Append an action's tokens: its sampled ids, or the encoded text of a text agent."""
        if self._codec is None:
            return None
        row = self.rows[-1]
        ids = self.ids_of(action)
        if action.token_ids is None:
            row.sampled = False
        start = len(row.token_ids)
        row.extend(ids, action.logprobs if action.logprobs is not None else [0.0] * len(ids))
        span = StepSpan(episode, step, start, len(row.token_ids))
        row.spans.append(span)
        self._last_action = ids
        return span

    def _open(self, messages: Sequence[Message], begins: str, rewrites: str = "") -> None:
        assert self._codec is not None
        opening = self._codec.open(messages)
        row = DraftRow(begins, rewrites)
        row.extend(opening.token_ids)
        self.rows.append(row)
        self._text = opening.text
