"""Agents without a model that an environment brings along: its best player, its teacher."""

import importlib
from typing import Any

from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.envs.random_agent import RandomAgent
from agentsgym.types import Agent

_HOMES: dict[tuple[str, str], str] = {
    ("TwentyQuestions", "optimal"): "agentsgym.envs.twenty_questions.OptimalAgent",
    ("TwentyQuestions", "teacher"): "agentsgym.envs.twenty_questions.teacher.RandomTeacher",
}
_KINDS = ("optimal", "teacher")


def scripted_agent(env: MultistepEnv, kind: str, **options: Any) -> Agent:
    """The environment's agent of a kind: "optimal", the best known player, or "teacher", whom a
    warm start imitates.

    An environment of one's own defines methods of the names `optimal_agent` and `teacher_agent`.
    One without a teacher that lists its `admissible_actions` is taught by who picks at random.
    Raises ConfigError where it has none.
    """
    if kind not in _KINDS:
        raise ConfigError(f"no agent is called {kind!r}; known: {', '.join(_KINDS)}")
    method = getattr(env, f"{kind}_agent", None)
    if method is not None:
        made: Agent = method(**options)
        return made
    home = _HOMES.get((env.name, kind))
    if home is None and kind == "teacher" and hasattr(env, "admissible_actions"):
        return RandomAgent(env, **options)
    if home is None:
        raise ConfigError(
            f"{env.name} brings no {kind} agent; give its class a method {kind}_agent(self)"
        )
    module, _, name = home.rpartition(".")
    agent: Agent = getattr(importlib.import_module(module), name)(env, **options)
    return agent
