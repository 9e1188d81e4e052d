"""Agents without a model that an environment defines: its best player, its teacher."""

from agentsgym.agents import RandomAgent
from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.envs.base import overrides
from agentsgym.types import Agent

_METHODS = {
    "optimal": ("optimal_agent(self)",),
    "teacher": ("teacher_agent(self, *, seed=0)", "admissible_actions(self, state)"),
    "random": ("admissible_actions(self, state)",),
    "never": ("never_informing_agent(self)",),
}
"""Kinds of agents, and the methods of which an environment must define at least one."""
SEEDED = ("teacher", "random")
"""The kinds of agents that draw their actions."""


def scripted_agent(env: MultistepEnv, kind: str, *, seed: int = 0) -> Agent:
    """The environment's agent of a kind: "optimal", the best known player; "teacher", the player
    that a warm start imitates; "random", a random player of its admissible actions; or "never", the
    best player that never takes an informing action.

    If an environment defines no teacher but `admissible_actions`, the random player is its teacher.
    Raises ConfigError if it has no such agent; the message names the ones that it has.
    """
    if kind not in _METHODS:
        raise ConfigError(f"no agent is called {kind!r}; known: {', '.join(_METHODS)}")
    agent = _find(env, kind, seed)
    if agent is not None:
        return agent
    there = [f"agent:{other}" for other in available_agents(env)]
    raise ConfigError(
        f"{env.name} has no {kind} agent: its class would have to define "
        f"{' or '.join(_METHODS[kind])}; it has {', '.join(there) or 'no other'}"
        + (f" (agentsgym eval {there[0]} --env {env.class_path})" if there else "")
    )


def available_agents(env: MultistepEnv) -> list[str]:
    """The kinds of agents that an environment has."""
    names = {kind: methods[0].partition("(")[0] for kind, methods in _METHODS.items()}
    draws = RandomAgent.can_play(env)
    return [
        kind
        for kind, name in names.items()
        if (kind != "random" and overrides(env, name)) or (kind in SEEDED and draws)
    ]


def _find(env: MultistepEnv, kind: str, seed: int) -> Agent | None:
    if kind == "optimal":
        return env.optimal_agent()
    if kind == "never":
        agent: Agent | None = getattr(env, "never_informing_agent", lambda: None)()
        return agent
    teacher = env.teacher_agent(seed=seed) if kind == "teacher" else None
    if teacher is None and RandomAgent.can_play(env):
        return RandomAgent(env, seed=seed)
    return teacher
