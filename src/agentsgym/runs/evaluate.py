"""Evaluations of a run: what is played of its held-out tasks, by the model in training or by one
that is loaded once and plays any environments, the directory in which one is saved, and what
players earn that need no model.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentsgym.agents.scripted import RandomAgent, ScriptedAgent, SeededAgent
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.evaluation import Played, assess_played, evaluate_requests, rollout_requests
from agentsgym.runs.from_config import make_env, run_tasks
from agentsgym.runs.settings import RunConfig
from agentsgym.types import Agent, Rollout, RolloutRequest
from agentsgym.types.text import named_error, short_repr

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer

logger = logging.getLogger(__name__)
Note = Callable[[str], None]


def held_out_requests(
    run: RunConfig,
    rows: Iterable[Mapping[str, Any]] | None = None,
    max_rollout_tokens: int | None = None,
) -> list[RolloutRequest]:
    """What an evaluation of `run` plays of its held-out tasks `rows`. Raises
    ConfigError if it has none."""
    return rollout_requests(
        list(run_tasks(make_env(run), run.data, "eval") if rows is None else rows),
        run.eval.rollouts,
        rollouts_per_task=run.eval.rollouts_per_task,
        seed=run.eval.seed,
        max_rollout_tokens=max_rollout_tokens,
    )


def evaluate_trainer(
    trainer: "GRPOEnvTrainer", requests: Sequence[RolloutRequest], step: int, *, seed: int
) -> Played:
    """Evaluate the trainer's weights after optimizer step `step`. All ranks must call it, with all
    requests; each plays its share. The figures are over the rollouts of all, and the rollouts in
    the result this rank's own."""
    collector = trainer.collector
    rollouts = trainer.play(collector.share(requests), step, collector.eval_sampling)
    # Figures need no tokens, which are long.
    shared = trainer.ranks.gather([rollout.without_tokens() for rollout in rollouts])
    shared.sort(key=lambda rollout: (rollout.group, rollout.index))
    played = assess_played(shared, collector.envs, seed=seed)
    return Played(played.evaluation, tuple(rollouts))


def other_references(
    env: MultistepEnv, requests: Sequence[RolloutRequest | Rollout]
) -> dict[str, float]:
    """The mean scores of the environment's other players on these tasks, by name; without those
    that are not known on every task."""
    try:
        scores = [env.other_references(one.task_data) for one in requests]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's environment may raise anything
        logger.warning("%s: the scores of other players: %s", env.name, named_error(error))
        return {}
    names = [name for name in scores[0] if all(name in one for one in scores)] if scores else []
    means = {name: math.fsum(one[name] for one in scores) / len(scores) for name in names}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}


# -- what players earn that need no model ----------------------------------------------------------


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
