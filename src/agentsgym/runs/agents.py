"""Agents without a model that an environment brings along: its best player, its teacher."""

from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.envs.random_agent import RandomAgent
from agentsgym.types import Agent

KINDS = ("optimal", "teacher", "random")
_METHODS = {
    "optimal": "optimal_agent(self)",
    "teacher": "teacher_agent(self, *, seed=0) or admissible_actions(self, state)",
    "random": "admissible_actions(self, state)",
}


def scripted_agent(env: MultistepEnv, kind: str, *, seed: int = 0) -> Agent:
    """The environment's agent of a kind: "optimal", the best known player, "teacher", whom a warm
    start imitates, or "random", who picks among its admissible actions.

    One without a teacher that lists its `admissible_actions` is taught by who picks at random.
    Raises ConfigError where it has none, saying which it has.
    """
    if kind not in KINDS:
        raise ConfigError(f"no agent is called {kind!r}; known: {', '.join(KINDS)}")
    agent = _find(env, kind, seed)
    if agent is not None:
        return agent
    there = [f"agent:{other}" for other in KINDS if _find(env, other, seed) is not None]
    raise ConfigError(
        f"{env.name} brings no {kind} agent (its class would define {_METHODS[kind]}); "
        + (f"agentsgym eval {there[0]} --env {env.class_path} works" if there else "nor another")
    )


def _find(env: MultistepEnv, kind: str, seed: int) -> Agent | None:
    if kind == "optimal":
        return env.optimal_agent()
    teacher = env.teacher_agent(seed=seed) if kind == "teacher" else None
    if teacher is None and RandomAgent.can_play(env):
        return RandomAgent(env, seed=seed)
    return teacher
