"""The transcript of one rollout: rows of ids, mask and logprobs that only grow.

Invariant: the tokens before a span are exactly the context that the agent saw when it sampled the
span. If a chat template rewrites history, a new row begins; `begins` says so, and
`rewrites` what changed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agentsgym.tokens.codec import Codec
from agentsgym.tokens.encoding import shared
from agentsgym.types import GenerationResult, Message, StepSpan


@dataclass(slots=True)
class DraftRow:
    """A row that is still growing. Ids are stored per token, log-probabilities per action: what
    has the same value in all other places costs no memory in a session that is played."""

    begins: str
    rewrites: str = ""
    token_ids: list[int] = field(default_factory=list)
    spans: list[StepSpan] = field(default_factory=list)
    sampled: bool = True
    _logprobs: list[Sequence[float]] = field(default_factory=list)

    def observe(self, ids: Iterable[int]) -> None:
        """Append context."""
        self.token_ids.extend(ids)

    def act(self, ids: Sequence[int], logprobs: Sequence[float], key: tuple[int, int]) -> StepSpan:
        """Append the action of the step `key`."""
        start = len(self.token_ids)
        self.token_ids.extend(shared(ids))
        span = StepSpan(*key, start, len(self.token_ids))
        self.spans.append(span)
        self._logprobs.append(logprobs)
        return span

    def cut(self) -> None:
        """Drop the context after the last action."""
        del self.token_ids[self.spans[-1].stop :]

    @property
    def mask(self) -> list[int]:
        """1 for each token of an action, 0 for context."""
        mask = [0] * len(self.token_ids)
        for span in self.spans:
            mask[span.start : span.stop] = [1] * span.length
        return mask

    @property
    def logprobs(self) -> list[float]:
        """The log-probability of each token of an action, 0.0 for context."""
        logprobs = [0.0] * len(self.token_ids)
        for span, values in zip(self.spans, self._logprobs, strict=True):
            logprobs[span.start : span.stop] = values
        return logprobs


class Transcript:
    """Records a rollout as rows of tokens. With `codec=None` (no tokenizer) it records none.

    `_text` is the context as text, and `_before` the text before the last observation, or its
    length if the context begins with it.
    """

    def __init__(self, codec: Codec | None) -> None:
        self._codec = codec
        self._text = ""
        self._before: str | int = ""
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
        self._before = self._text
        if self._last_action is None:
            self._open(messages, "episode")
            return
        bridge = self._codec.bridge(self._text, messages, self._last_action)
        if bridge.delta is None:
            self._open(messages, "template", bridge.rewrites)
        else:
            self.rows[-1].observe(bridge.delta)
            self._before = len(self._text)
            self._text = bridge.text

    def withdraw(self) -> None:
        """Remove the last observation because it gets no answer. A row ends with an action; a row
        without one is removed."""
        self._text = self._text[: self._before] if isinstance(self._before, int) else self._before
        if self.rows and not self.rows[-1].spans:
            self.rows.pop()
        elif self.rows:
            self.rows[-1].cut()

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
        logprobs = action.logprobs if action.logprobs is not None else (0.0,) * len(ids)
        self._last_action = ids
        return row.act(ids, logprobs, (episode, step))

    def _open(self, messages: Sequence[Message], begins: str, rewrites: str = "") -> None:
        assert self._codec is not None
        opening = self._codec.open(messages)
        row = DraftRow(begins, rewrites)
        row.observe(opening.token_ids)
        self.rows.append(row)
        self._text = opening.text
