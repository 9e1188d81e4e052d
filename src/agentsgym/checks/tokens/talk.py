"""A scripted conversation as an environment: what it says does not depend on the answers."""

from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.types import GenerationRequest

SYSTEM_PROMPT = "You answer in one sentence."
OBSERVATIONS = (
    "Think of an animal. I ask, you answer.",
    "No, it is larger than that.",
    "Yes. Can it swim?",
    "No. One more.",
)
ANSWERS = ("A mouse, maybe?", "Then it is a horse.", "It can, a little.", "I would say: a cow.")


class ScriptedTalk(MultistepEnv):
    """Says the texts of `task_data["observations"]` (by default `OBSERVATIONS`), one in each
    step."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return {"says": tuple(task_data.get("observations", OBSERVATIONS)), "played": 0}

    def _format_prompt(self, state: dict[str, Any], step: int) -> str:
        text: str = state["says"][min(step, len(state["says"]) - 1)]
        return text

    def _step_episode(
        self, session_id: str, state: dict[str, Any], action: str
    ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        played = state["played"] + 1
        return {**state, "played": played}, 0.0, played >= len(state["says"]), {}


class Answers:
    """A player that gives the same answers in every trial."""

    def __init__(self, answers: tuple[str, ...] = ANSWERS) -> None:
        self._answers = answers

    def __call__(self, env: MultistepEnv, request: GenerationRequest, number: int) -> str:
        """The answer of this step."""
        given = sum(message["role"] == "assistant" for message in request.messages)
        return self._answers[given % len(self._answers)]
