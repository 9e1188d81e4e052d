"""ToolEnv: an environment in which the agent calls tools, and answers when it has what it needs."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import Field

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.function_tools import FunctionTool, Outcome, ToolError, marked_tools
from agentsgym.envs.mcp_tools import McpTool, McpTools
from agentsgym.envs.settings import EnvSettings
from agentsgym.types import Answer, Message
from agentsgym.types.foreign import checked_number, checked_truth, scalar
from agentsgym.types.messages import ToolSchema
from agentsgym.types.names import ConfigError, did_you_mean
from agentsgym.types.text import cut, error_text

logger = logging.getLogger(__name__)

Tool = FunctionTool | McpTool


class ToolEnv(MultistepEnv):
    """The agent calls tools, several in one action too, and reads their results; an answer without
    a call ends the episode and is graded. A tool that returns an `Outcome` may pay and end it, too.

    An author lists functions with type hints and docstrings in `tools`, or marks methods
    `(self, state, …)` with `@tool`, and overrides `_initialize_episode`, which returns a dict with
    the first prompt under "prompt", and `grade`. A call that fails (an unknown tool, wrong
    arguments, an exception, no result in time) is answered with the error. An async function and
    the tools of a server have `tool_seconds` for a result; any other function runs to its end.
    """

    tools: Sequence[Callable[..., Any] | McpTools] = ()

    class Settings(EnvSettings):
        """The settings of an environment with tools."""

        max_steps_per_episode: int = 10
        tool_seconds: float = Field(
            60.0, gt=0, le=3600, description="seconds that a call of an async tool or server has"
        )
        result_characters: int = Field(
            10_000, ge=16, description="longer results of tools lose their middle"
        )

    config: Settings

    def _set_up(self) -> None:
        if self.config.action_form == "tool":
            raise ConfigError(f"{self.name}: action_form is 'text', for it has tools of its own")
        if any(tool.waits for tool in self._tools.values()):
            self.blocking = True  # type: ignore[misc]

    @cached_property
    def _tools(self) -> dict[str, Tool]:
        """The tools by name. Raises ConfigError if two have one name."""
        listed: list[Tool] = []
        for one in self.tools:
            listed += one.tools if isinstance(one, McpTools) else [FunctionTool(one)]
        by_name: dict[str, Tool] = {}
        for tool in [*listed, *marked_tools(type(self))]:
            name = tool.schema["function"]["name"]
            if by_name.setdefault(name, tool) is not tool:
                raise ConfigError(f"{self.name} has two tools of the name {name!r}")
        return by_name

    @property
    def tool_schemas(self) -> Sequence[ToolSchema]:
        return [tool.schema for tool in self._tools.values()]

    @property
    def offers_tools(self) -> bool:
        return True  # a subclass that has none yet gets an Answer, too

    @abstractmethod
    def grade(self, state: dict[str, Any], answer: str) -> float:
        """The reward of the agent's answer. True is 1.0 and a win, False 0.0 and none."""

    def _format_prompt(self, state: dict[str, Any], step: int) -> str | list[Message]:
        return str(state["prompt"]) if step == 0 else list(state["results"])

    def _format_answer(self, state: dict[str, Any], step: int) -> str:
        return "\n".join(message["content"] for message in state.get("results", ()))

    def _step_episode(
        self, session_id: str, state: dict[str, Any], action: Answer
    ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        if not action.attempted:
            grade = self.grade(state, action.text)
            info: dict[str, Any] = {"metrics": action.metrics(0)}
            if isinstance(scalar(grade), bool):
                info["win"] = grade
            return {**state, "results": []}, grade, True, info
        results, executed = [], 0
        reward, info, done = 0.0, dict[str, Any](), False
        for call in action.calls:
            name = call["name"]
            outcome, ran = _TOO_LATE if done else self._outcome(state, name, call["arguments"])
            executed += ran
            text = cut(outcome.text, self.config.result_characters)
            results.append(Message("tool", text, name=name))
            reward += checked_number(outcome.reward, f"the reward of the tool {name}")
            if checked_truth(outcome.done, f"done of the tool {name}"):
                done = True
                if isinstance(scalar(outcome.reward), bool):
                    info["win"] = outcome.reward
        if action.unread:
            results.append(Message("user", _said_of_unread(action)))
        info |= {"malformed": not action.calls, "metrics": action.metrics(executed)}
        return {**state, "results": results}, reward, done, info

    def _outcome(
        self, state: dict[str, Any], name: str, arguments: Mapping[str, Any]
    ) -> tuple[Outcome, bool]:
        """What a call gives, and whether that is a result; else it is an error."""
        try:
            if name not in self._tools:
                raise ToolError(f"there is no tool {name!r}; {did_you_mean(name, self._tools)}")
            return self._tools[name].run(self, state, arguments, self.config.tool_seconds), True
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an author's tool may raise anything
            logger.debug("%s: the tool %s failed", self.name, name, exc_info=True)
            kind = "" if isinstance(error, ToolError) else f"{type(error).__name__}: "
            return Outcome(f"Error: {kind}{error_text(error)}"), False


_TOO_LATE = Outcome("Error: an earlier call ended the episode"), False


def _said_of_unread(action: Answer) -> str:
    """What the agent is told of calls that could not be read."""
    ran = "; the others have results" if action.calls else ", so nothing ran"
    which = f"{action.unread} of {action.attempted} calls could not be read"
    return f"Error: {which}{ran}. Write calls in the form of your tools."
