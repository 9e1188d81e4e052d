"""Agents without a model: scripted, random, human."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.base import MultistepEnv, overrides
from agentsgym.types import Agent, PrivilegedAgent, SessionView

NOTHING_LEFT = "Nothing to note."


class ScriptedAgent:
    """Says the given lines in order and then repeats the last one; or calls a function of messages.

    The script starts again with every rollout, but not with every episode of a rollout.
    """

    def __init__(self, script: Sequence[str] | Callable[[list[dict[str, Any]]], str]) -> None:
        if not callable(script) and not script:
            raise ValueError("a script needs at least one line")
        self._script = script

    def get_action(self, messages: list[dict[str, Any]], agent_state: Any) -> tuple[str, Any]:
        """The next line; the state is the number of lines used so far."""
        number = int(agent_state or 0)
        if callable(self._script):
            return self._script(messages), number + 1
        return self._script[min(number, len(self._script) - 1)], number + 1


class HumanAgent:
    """Shows the new messages of the conversation and asks a person for the action.

    `show` receives the text of each new message; `ask` returns a line. A KeyboardInterrupt reaches
    the caller, who can end the game; any other exception fails the rollout.
    """

    def __init__(self, show: Callable[[str], None], ask: Callable[[], str]) -> None:
        self._show = show
        self._ask = ask

    def get_action(self, messages: list[dict[str, Any]], agent_state: Any) -> tuple[str, Any]:
        """Show the messages since the last action and read a line; the state counts messages."""
        seen = int(agent_state or 0)
        if len(messages) < seen:
            seen = 0
        for message in messages[seen:]:
            if message["role"] != "assistant":
                self._show(message["content"])
        return self._ask(), len(messages) + 1


class RandomAgent(PrivilegedAgent):
    """Plays one of `env.admissible_actions(state)`, each with the same probability.

    A warm start imitates it if the environment has no expert: the model learns the form of a move
    and still explores all moves. `env` must define `admissible_actions`; the agent can also play
    others.
    """

    def __init__(self, env: MultistepEnv, *, seed: int = 0) -> None:
        if not self.can_play(env):
            raise TypeError(f"{env.name} has no method admissible_actions(state)")
        self._rng = random.Random(seed)

    @staticmethod
    def can_play(env: MultistepEnv) -> bool:
        """Whether the environment lists its actions."""
        return overrides(env.unwrapped, "admissible_actions")

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session. It raises ValueError if no action is admissible."""

        def choose(messages: list[dict[str, Any]]) -> str:
            actions = session.admissible_actions()
            if actions:
                return self._rng.choice(actions)
            if session.asks_for_note:
                return NOTHING_LEFT
            raise ValueError(f"{session.env.name}: nothing is admissible")

        return ScriptedAgent(choose)


class SeededAgent(PrivilegedAgent):
    """The agent `make(seed)`.

    An evaluation plays each rollout with `with_seed` and the rollout's own seed, so that a rollout
    depends neither on the others nor on their order.
    """

    def __init__(self, make: Callable[[int], Agent], *, seed: int = 0) -> None:
        self._make = make
        self._agent = make(seed)

    def with_seed(self, seed: int) -> Agent:
        """A new agent with this seed."""
        return self._make(seed)

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session; its noise also depends on the sessions before."""
        if isinstance(self._agent, PrivilegedAgent):
            return self._agent.for_session(session)
        return self._agent


# -- agents that an environment defines ------------------------------------------------------------


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
