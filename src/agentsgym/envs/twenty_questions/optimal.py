"""The reference player as an agent; it only reads the conversation."""

from typing import Any

from agentsgym.envs.twenty_questions.env import TwentyQuestionsEnv
from agentsgym.types import Message

_ANSWERS = {"Yes": True, "No": False}


class OptimalAgent:
    """Plays `BestPlay` (greedy information gain) on an environment's table and step limit."""

    def __init__(self, env: TwentyQuestionsEnv) -> None:
        self._env = env

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next question or guess; it needs no state, because it reads the conversation."""
        first = next(i for i, message in enumerate(messages) if message["role"] == "user")
        known = self._hints(messages[first]["content"])
        turns = messages[first + 1 :]
        for question, answer in zip(turns[::2], turns[1::2], strict=True):
            attribute = self._env.attribute_for(question["content"])
            if attribute is not None:
                known.append((attribute.key, _read(answer["content"])))
        left = self._env.config["max_steps_per_episode"] - len(turns) // 2
        return self._env.best_play.next_action(known, frozenset(), left), None

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


def _read(answer: str) -> bool | None:
    for word, value in _ANSWERS.items():
        if answer.startswith(word):
            return value
    return None
