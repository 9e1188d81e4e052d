"""What a run plays beside its training: held-out tasks, games of the untrained model, which tell
whether it can learn at all, and those of players that need no model.
"""

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from agentsgym.agents.scripted import RandomAgent, ScriptedAgent, SeededAgent
from agentsgym.credit.table import differ
from agentsgym.envs import ConfigError, EnvPool, MultistepEnv
from agentsgym.evaluation import Played, assess_played, evaluate_requests, rollout_requests
from agentsgym.evaluation.metrics import record, step_means
from agentsgym.runs.from_config import make_env, run_tasks
from agentsgym.runs.settings import RunConfig
from agentsgym.types import Agent, Rollout, RolloutRequest
from agentsgym.types.text import named_error, short_repr
from agentsgym.warm_start.players import ERRORS, ILLEGAL, Figures

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer

logger = logging.getLogger(__name__)


def held_out_requests(
    run: RunConfig,
    rows: Iterable[Mapping[str, Any]] | None = None,
    max_rollout_tokens: int | None = None,
) -> list[RolloutRequest]:
    """What an evaluation of `run` plays of its held-out tasks. Raises ConfigError without any."""
    return rollout_requests(
        list(run_tasks(make_env(run), run.data, "eval") if rows is None else rows),
        run.eval.rollouts,
        rollouts_per_task=run.eval.rollouts_per_task,
        seed=run.eval.seed,
        max_rollout_tokens=max_rollout_tokens,
    )


def training_games(
    trainer: "GRPOEnvTrainer",
    rows: Sequence[Mapping[str, Any]],
    rollouts: int,
    rollouts_per_task: int = 1,
    *,
    seed: int,
) -> list[Rollout]:
    """Games of the trainer's weights on training tasks `rows`, with training's sampling settings.
    All ranks must call it; each plays its share, and has that."""
    requests = rollout_requests(
        rows,
        rollouts,
        rollouts_per_task=rollouts_per_task,
        seed=seed,
        max_rollout_tokens=trainer.args.max_rollout_tokens,
    )
    collector, step = trainer.collector, trainer.state.global_step
    return trainer.play(collector.share(requests), step, collector.train_sampling)


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


# -- whether a model can learn from its own games at all -------------------------------------------


PROBE = "probe"
"""The phase of a model's own games on training tasks, before the first evaluation or around a warm
start."""

PROBE_REWARD, PROBE_ERROR = "probe_reward", "probe_reward_error"
"""The mean reward of a probe's games, and its standard error over groups."""
LEAST_LEGAL, LEAST_SIGNAL = 0.1, 0.05
"""Shares of legal actions and of groups with signal; below both there is nothing to learn from."""
MOST_TASKS = 8
"""Tasks at most that are played before the first evaluation, a group of games each."""


class NoSignal(ConfigError):
    """Training was stopped at its beginning; the message says what to do."""


def shares(figures: Mapping[str, float]) -> tuple[float, float]:
    """Of actions that are neither `malformed` nor `unparsed`, and of groups whose rewards
    differ."""
    legal = 1.0 - figures.get("malformed", 0.0) - figures.get("unparsed", 0.0)
    return max(0.0, legal), 1.0 - figures.get("groups_without_signal", 0.0)


def signal_text(figures: Mapping[str, float]) -> str:
    """Both shares in words."""
    legal, signal = shares(figures)
    return f"{legal:.1%} of the actions are legal, {signal:.0%} of the groups have signal"


def check_signal(figures: Mapping[str, float], when: str) -> None:
    """Raise NoSignal if both shares are near zero in games played `when`; not without figures."""
    legal, signal = shares(figures)
    if figures and legal < LEAST_LEGAL and signal < LEAST_SIGNAL:
        raise NoSignal(
            f"stopped {when}, because RL has nothing to learn from: "
            f"{signal_text(figures)}. Warm-start the model first (warm_start.source=teacher, "
            "optimal, random, rollouts or chat; more games or epochs if it was), or train anyway "
            "with signal_check=false"
        )


def probe(
    trainer: "GRPOEnvTrainer", rows: Sequence[Mapping[str, Any]], tasks: int, seed: int
) -> tuple[dict[str, float], list[Rollout]]:
    """A group of games on each of `tasks` rows, with training's sampling settings, and their
    figures: `malformed`, `truncated` and the environment's own figures as means per action, and
    `groups_without_signal`, the share of groups whose rewards are equal, PROBE_REWARD, and of
    several groups PROBE_ERROR. All ranks must call it; the figures are over the games of all, and
    the rollouts are this rank's."""
    rollouts = training_games(
        trainer, rows, tasks * trainer.args.num_generations, trainer.args.num_generations, seed=seed
    )
    played = trainer.ranks.gather([(rollout.group, record(rollout)) for rollout in rollouts])
    rewards: dict[int, list[float]] = defaultdict(list)
    for group, one in played:
        if not one.failed:
            rewards[group].append(one.reward)
    equal = sum(not differ(values) for values in rewards.values())
    figures = step_means([one for _, one in played])
    figures["groups_without_signal"] = equal / max(1, len(rewards))
    means = [fmean(values) for values in rewards.values()]
    if means:
        figures[PROBE_REWARD] = fmean(means)
    if len(means) > 1:
        figures[PROBE_ERROR] = stdev(means) / math.sqrt(len(means))
    return figures, rollouts


def plays_better(own: Mapping[str, float], imitated: Figures) -> bool:
    """Whether a model's own games (the figures of a probe) were as legal as those to imitate, and
    earned more, as far as one can tell."""
    if PROBE_ERROR not in own:
        return False
    error = ERRORS * math.hypot(own[PROBE_ERROR], imitated.error)
    is_legal = shares(own)[0] >= imitated.legal - ILLEGAL
    return is_legal and own[PROBE_REWARD] - error > imitated.reward


# -- what players earn that need no model ----------------------------------------------------------


RANDOM, OPTIMAL, ALWAYS = "random", "optimal", "always "
"""Names of the random player, of the environment's best and, followed by its action, of one that
always acts alike."""
_GAMES, _ACTIONS, _SECONDS = 64, 8, 5.0
"""Games of each player, actions of a player that are tried as constants, and seconds after which no
further player begins: an environment that takes longer costs more than the comparison is worth."""


def simple_players(
    env: MultistepEnv, requests: Sequence[RolloutRequest], played: Sequence[Rollout], seed: int
) -> dict[str, float]:
    """The mean rewards of the random player, of the best constant action and, where no
    `reference_score` is known, of the environment's best player, on some of the requests, by name.
    The constant actions are the most frequent ones of the model's `played` rollouts and of the
    random player. Without those that the environment can't have; empty if it waits for others."""
    if env.blocking or not requests:
        return {}
    some = [
        replace(one, max_rollout_tokens=None) for one in requests[:: -(-len(requests) // _GAMES)]
    ]
    began, earned = time.monotonic(), dict[str, float]()

    def play(name: str, agent: Agent) -> Sequence[Rollout]:
        result = evaluate_requests(some, agent, EnvPool(None, envs=[env]))
        if result.evaluation.reward is not None:
            earned[name] = result.evaluation.reward
        return result.rollouts

    try:
        at_random: Sequence[Rollout] = ()
        if RandomAgent.can_play(env):
            agent = SeededAgent(lambda own: RandomAgent(env, seed=own), seed=seed)
            at_random = play(RANDOM, agent)
        for name, player in _players(env, requests[0].task_data, (played, at_random)):
            if time.monotonic() - began > _SECONDS:
                break
            play(name, player)
    except Exception as error:  # a user's environment may raise anything
        logger.warning("%s: the scores of simple players: %s", env.name, named_error(error))
    constant = [name for name in earned if name.startswith(ALWAYS)]
    best = max(constant, key=lambda name: earned[name], default=None)
    return {name: reward for name, reward in earned.items() if name in (RANDOM, OPTIMAL, best)}


def _players(
    env: MultistepEnv, task: Mapping[str, Any], played: Iterable[Sequence[Rollout]]
) -> Iterator[tuple[str, Agent]]:
    """The best player, and the constant players of each player's most frequent actions."""
    optimal = None if env.reference_score(task) is not None else env.optimal_agent()
    if optimal is not None:
        yield OPTIMAL, optimal
    said = [Counter(s.action for r in one for e in r.episodes for s in e.actions) for one in played]
    for text in dict.fromkeys(text for one in said for text, _ in one.most_common(_ACTIONS)):
        yield f"{ALWAYS}{short_repr(text, 40)}", ScriptedAgent([text])
