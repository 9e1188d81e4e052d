"""A rollout as the events of Inspect's transcript: a span per episode, and for each action the
model's turn and the reward of the step as an intermediate score."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from inspect_ai.event import Event, InfoEvent, ModelEvent, ScoreEvent, SpanBeginEvent, SpanEndEvent
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
)
from inspect_ai.scorer import Score

from agentsgym.types import Episode, Message, Rollout, Step
from agentsgym.types.text import clean_text, finite, plain

_SETTINGS = GenerateConfig()


class Transcript:
    """The messages and events of one rollout of `model`, `played` at a time.

    `messages` are those of all its episodes; an episode that continues the conversation of the one
    before it repeats none of it.
    """

    def __init__(self, rollout: Rollout, model: str, played: datetime) -> None:
        self._rollout = rollout
        self._model = model
        self._played = played
        self._made = 0
        self.messages: list[ChatMessage] = []
        self.events: list[Event] = []
        shown: list[ChatMessage] = []
        for episode in rollout.episodes:
            known = len(shown) if episode.continues else 0
            shown = shown[:known] + [self._message(m) for m in episode.messages]
            self.messages += shown[known:]
            self.events += self._episode(episode, shown, known)

    def _episode(
        self, episode: Episode, shown: Sequence[ChatMessage], known: int
    ) -> Iterator[Event]:
        span = f"{self._rollout.session_id}-{episode.index}"
        free = " (free shot)" if episode.score_weight == 0 else ""
        yield SpanBeginEvent(id=span, name=f"episode {episode.index + 1}{free}", **self._at(span))
        places = [n for n in range(known, len(shown)) if shown[n].role == "assistant"]
        for number, step in enumerate(episode.steps):
            if number < len(places):
                asked, said = shown[: places[number]], shown[places[number]]
            else:  # a file without the conversation
                asked = [self._message({"role": "user", "content": step.observation})]
                said = self._message({"role": "assistant", "content": step.action})
            yield self._said(step, asked, said, span)
            yield self._reward(step, span)
        yield InfoEvent(source="episode", data=episode_facts(episode), **self._at(span))
        yield SpanEndEvent(id=span, **self._at(span))

    def _said(
        self, step: Step, asked: Sequence[ChatMessage], said: ChatMessage, span: str
    ) -> ModelEvent:
        cause = "max_tokens" if step.truncated else "stop"
        output = ModelOutput.from_message(said, cause)
        output.model = self._model
        return ModelEvent(
            model=self._model,
            input=list(asked),
            tools=[],
            tool_choice="none",
            config=_SETTINGS,
            output=output,
            **self._at(span),
        )

    def _reward(self, step: Step, span: str) -> ScoreEvent:
        told = {"reflection": step.kind == "reflection"}
        told |= {"malformed": step.malformed, "truncated": step.truncated}
        marks = [name for name, holds in told.items() if holds]
        score = Score(
            value=step.reward,
            explanation=", ".join([f"reward of step {step.index + 1}", *marks]),
            metadata=plain(step.info),
        )
        return ScoreEvent(score=score, intermediate=True, scorer="reward", **self._at(span))

    def _at(self, span: str) -> dict[str, Any]:
        """What all events have. Inspect would draw random names and read the clock."""
        self._made += 1
        name = f"{self._rollout.session_id}-event-{self._made}"
        return {"uuid": name, "span_id": span, "timestamp": self._played, "working_start": 0.0}

    def _message(self, message: Message) -> ChatMessage:
        self._made += 1
        name = f"{self._rollout.session_id}-message-{self._made}"
        content = clean_text(str(message["content"]))
        if message["role"] == "assistant":
            return ChatMessageAssistant(
                id=name, content=content, model=self._model, source="generate"
            )
        if message["role"] == "system":
            return ChatMessageSystem(id=name, content=content)
        return ChatMessageUser(id=name, content=content)


def episode_facts(episode: Episode) -> dict[str, Any]:
    """How an episode ended."""
    return {
        "reward": finite(episode.reward),
        "win": episode.win,
        "scored": episode.score_weight > 0,
        "stop_reason": episode.stop_reason,
        "steps": len(episode.steps),
    }
