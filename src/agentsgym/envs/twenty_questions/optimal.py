"""The reference player as an agent; it only reads the conversation."""

from collections.abc import Sequence
from typing import Any, Protocol

from agentsgym.envs.settings import EnvSettings
from agentsgym.envs.twenty_questions.best_play import BestPlay
from agentsgym.envs.twenty_questions.knowledge import Attribute
from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView

_ANSWERS = {"Yes": True, "No": False}


class QuestionTable(Protocol):
    """The environment as its reference player needs it."""

    @property
    def config(self) -> EnvSettings: ...

    @property
    def best_play(self) -> BestPlay: ...

    def attribute_for(self, phrase_or_question: str) -> Attribute | None: ...


class OptimalAgent(PrivilegedAgent):
    """Plays `BestPlay` (greedy information gain) on an environment's table and step limit."""

    def __init__(self, env: QuestionTable) -> None:
        self._env = env

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session."""
        return _OptimalPlayer(self, session)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next question or guess in a conversation of one episode; needs no state."""
        return self.choose(messages, sum(m["role"] == "assistant" for m in messages)), None

    def choose(self, messages: Sequence[Message], said: int) -> str:
        """The next question or guess after a conversation, with `said` actions of the episode."""
        first = next(i for i, message in enumerate(messages) if message["role"] == "user")
        known = self._hints(messages[first]["content"])
        turns = messages[first + 1 :]
        for question, answer in zip(turns[::2], turns[1::2], strict=True):
            attribute = self._env.attribute_for(question["content"])
            if attribute is not None:
                known.append((attribute.key, _read(answer["content"])))
        left = self._env.config.max_steps_per_episode - said
        return self._env.best_play.next_action(known, frozenset(), left)

    def _hints(self, prompt: str) -> list[tuple[str, bool | None]]:
        known: list[tuple[str, bool | None]] = []
        for line in prompt.splitlines():
            word, _, rest = line.removeprefix("Hint: ").partition(", ")
            phrase = rest.removesuffix(".")
            if word == "No":
                phrase = phrase.removeprefix("not ")
            attribute = self._env.attribute_for(phrase) if word in _ANSWERS else None
            if attribute is not None:
                known.append((attribute.key, _ANSWERS[word]))
        return known


class _OptimalPlayer:
    def __init__(self, agent: OptimalAgent, session: SessionView) -> None:
        self._agent = agent
        self._session = session

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next question or guess; needs no state."""
        return self._agent.choose(messages, len(self._session.actions)), None


def _read(answer: str) -> bool | None:
    for word, value in _ANSWERS.items():
        if answer.startswith(word):
            return value
    return None
