"""What players earn that need no model, to compare a trained one with."""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentsgym.agents.scripted import RandomAgent, ScriptedAgent, SeededAgent
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.evaluation import evaluate_requests
from agentsgym.types import Agent, Rollout, RolloutRequest
from agentsgym.types.text import named_error, short_repr

logger = logging.getLogger(__name__)

RANDOM, OPTIMAL, ALWAYS = "random", "optimal", "always "
"""Names of the random player, of the environment's best and, followed by its action, of one that
always acts alike."""
_GAMES, _ACTIONS, _SECONDS = 64, 8, 5.0
"""Games of each player, constant actions that are tried, and seconds after which no further player
begins: an environment that takes longer costs more than the comparison is worth."""


def simple_players(
    env: MultistepEnv, requests: Sequence[RolloutRequest], played: Sequence[Rollout], seed: int
) -> dict[str, float]:
    """The mean rewards of the random player, of the best constant action and, where no
    `reference_score` is known, of the environment's best player, on some of the requests, by name.
    The constant actions are the most frequent ones of the model's `played` rollouts. Without those
    that the environment can't have, and empty if it waits for others."""
    if env.blocking or not requests:
        return {}
    some = [
        replace(one, max_rollout_tokens=None) for one in requests[:: -(-len(requests) // _GAMES)]
    ]
    began, earned = time.monotonic(), dict[str, float]()
    try:
        for name, agent in _players(env, requests[0].task_data, played, seed):
            if time.monotonic() - began > _SECONDS:
                break
            reward = evaluate_requests(some, agent, EnvPool(None, envs=[env])).evaluation.reward
            if reward is not None:
                earned[name] = reward
    except Exception as error:  # a user's environment may raise anything
        logger.warning("%s: the scores of simple players: %s", env.name, named_error(error))
    constant = [name for name in earned if name.startswith(ALWAYS)]
    best = max(constant, key=lambda name: earned[name], default=None)
    return {name: reward for name, reward in earned.items() if name in (RANDOM, OPTIMAL, best)}


def _players(
    env: MultistepEnv, task: Mapping[str, Any], played: Sequence[Rollout], seed: int
) -> Iterator[tuple[str, Agent]]:
    if RandomAgent.can_play(env):
        yield RANDOM, SeededAgent(lambda own: RandomAgent(env, seed=own), seed=seed)
    texts = Counter(s.action for r in played for e in r.episodes for s in e.actions)
    for text, _ in texts.most_common(_ACTIONS):
        yield f"{ALWAYS}{short_repr(text, 40)}", ScriptedAgent([text])
    optimal = None if env.reference_score(task) is not None else env.optimal_agent()
    if optimal is not None:
        yield OPTIMAL, optimal
