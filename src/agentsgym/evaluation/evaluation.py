"""Evaluates an agent: rates with intervals, and regret against the best known play."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsgym.agents.seeded import SeededAgent
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.envs.dataset import pool_of
from agentsgym.evaluation.intervals import mean_interval, rate_interval
from agentsgym.evaluation.metrics import mean, record, step_means, told_wins, trial_means
from agentsgym.evaluation.tasks import Cluster, default_cluster, rollout_requests
from agentsgym.rollout import play
from agentsgym.rollout.drive import tokenizer_of
from agentsgym.types import Agent, Rollout, RolloutRequest, Trust

logger = logging.getLogger(__name__)

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures of some rollouts. Rates are over the rollouts that did not fail.

    `win_rate` and its `ci95` are None if the environment does not report wins; the intervals
    are over the `clusters` (tasks with the same solution; see `mean_interval` and `rate_interval`).
    `mean_steps` counts actions per rollout. `reference` is the mean score of the best known play on
    the same tasks, and `regret` is that score minus the reward; both are None if the score of any
    task is unknown. `metrics` are the environment's own figures, `truncated`, `malformed` and the
    shares of informing actions, each as a mean per step. `stop_reasons` counts scored episodes.
    `trial` has the reward and win rate of each episode and the exploration gain, for trials of
    several episodes.

    With several environments, `environments` has each one's own evaluation, by class path; the
    other figures are then over the environments that have them (see `evaluation.metrics`).
    """

    episodes: int
    tasks: int
    clusters: int
    failures: int
    win_rate: float | None
    ci95: Interval | None
    reward: float
    reward_ci95: Interval
    mean_steps: float
    reference: float | None
    regret: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    stop_reasons: Mapping[str, int] = field(default_factory=dict)
    trial: Mapping[str, float] = field(default_factory=dict)
    environments: Mapping[str, "Evaluation"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Played:
    """An evaluation and the rollouts it was computed from."""

    evaluation: Evaluation
    rollouts: tuple[Rollout, ...]


def evaluate(
    rows: Sequence[Mapping[str, Any]],
    agent: Agent,
    *,
    episodes: int = 256,
    rollouts_per_task: int = 1,
    seed: int = 0,
    cluster: Cluster = default_cluster,
    envs: EnvPool | Iterable[MultistepEnv] | None = None,
    max_rollout_tokens: int | None = None,
    trust: Trust = False,
) -> Played:
    """Let `agent` play `episodes` rollouts on rows of the dataset schema.

    The same `seed` gives any agent the same tasks and the same noise. `envs` are environment
    objects that play their rows, or a pool that keeps environments across calls. Raises ValueError
    without rows, and UnknownEnvironment or ConfigError before any play.
    """
    asked = rollout_requests(
        rows,
        episodes,
        rollouts_per_task=rollouts_per_task,
        seed=seed,
        cluster=cluster,
        max_rollout_tokens=max_rollout_tokens,
    )
    pool = pool_of(envs, tokenizer_of(agent), trust)
    return evaluate_requests(asked, agent, pool, seed=seed, cluster=cluster)


def evaluate_requests(
    asked: Sequence[RolloutRequest],
    agent: Agent,
    pool: EnvPool,
    *,
    seed: int = 0,
    cluster: Cluster = default_cluster,
    stored: Mapping[str, Rollout] | None = None,
    on_rollout: Callable[[Rollout], None] | None = None,
) -> Played:
    """Let `agent` play these requests (see `rollout_requests`).

    `stored` has rollouts that were played before, by session id; they are not played again.
    `on_rollout` is called with each new rollout as soon as it is over. A `SeededAgent` plays each
    rollout with noise from the rollout's own seed.
    """
    found = dict(stored or {})
    left = [request for request in asked if request.session_id not in found]
    for rollout in _play(left, agent, pool, on_rollout):
        found[rollout.session_id] = rollout
    rollouts = tuple(found[request.session_id] for request in asked)
    return assess_requests(asked, rollouts, pool, seed=seed, cluster=cluster)


def assess_requests(
    asked: Sequence[RolloutRequest],
    rollouts: Sequence[Rollout],
    pool: EnvPool,
    *,
    seed: int = 0,
    cluster: Cluster = default_cluster,
) -> Played:
    """The evaluation of requests that are already played, with the reference scores of their
    tasks; `rollouts[k]` played `asked[k]`."""
    references = _references(asked, pool, {r.group for r in rollouts if not r.failed})
    return Played(assess(rollouts, references, cluster=cluster, seed=seed), tuple(rollouts))


def _play(
    asked: Sequence[RolloutRequest],
    agent: Agent,
    pool: EnvPool,
    on_rollout: Callable[[Rollout], None] | None,
) -> list[Rollout]:
    if not isinstance(agent, SeededAgent):
        return play(asked, agent, pool, on_rollout=on_rollout)
    return [
        rollout
        for request in asked
        for rollout in play([request], agent.with_seed(request.seed), pool, on_rollout=on_rollout)
    ]


def _references(
    asked: Sequence[RolloutRequest], pool: EnvPool, wanted: Collection[int]
) -> list[float | None]:
    """The best known play's score for each request; None if it is unknown or its computation
    failed. `wanted` are the numbers of the tasks that can be played."""
    scores: dict[int, float] = {}
    for request in asked:
        if request.index == 0 and request.group in wanted:
            env = pool.of(request.env_class_path, request.env_config)
            try:
                score = env.reference_score(request.task_data)
                if score is not None and math.isfinite(score):
                    scores[request.group] = float(score)
            except Exception as error:
                logger.warning("%s: the reference score of a task: %r", env.name, error)
    return [scores.get(request.group) for request in asked]


def assess(
    rollouts: Sequence[Rollout],
    references: Sequence[float | None] | None = None,
    *,
    cluster: Cluster = default_cluster,
    seed: int = 0,
) -> Evaluation:
    """The figures of rollouts that are already played; `references` has one score for each."""
    scores = list(references or [None] * len(rollouts))
    return _assess(list(zip(rollouts, scores, strict=True)), cluster, seed)


Scored = tuple[Rollout, float | None]
"""A rollout and its reference score."""


def _assess(played: Sequence[Scored], cluster: Cluster, seed: int) -> Evaluation:
    pairs = [(rollout, score) for rollout, score in played if not rollout.failed]
    live = [rollout for rollout, _ in pairs]
    keys = [_key(rollout, cluster) for rollout in live]
    records = [record(rollout) for rollout in live]
    rewards = [one.reward for one in records]
    wins = [(w, key) for w, key in zip(told_wins(records), keys, strict=True) if w is not None]
    reference, regret = _reference(pairs)
    return Evaluation(
        episodes=len(played),
        tasks=len({rollout.group for rollout, _ in played}),
        clusters=len({_key(rollout, cluster) for rollout, _ in played}),
        failures=len(played) - len(live),
        win_rate=mean([win for win, _ in wins]) if wins else None,
        ci95=rate_interval(*zip(*wins, strict=True), seed=seed) if wins else None,
        reward=mean(rewards),
        reward_ci95=mean_interval(rewards, keys, seed=seed),
        mean_steps=mean([one.steps for one in records]),
        reference=reference,
        regret=regret,
        metrics=step_means(records),
        stop_reasons=dict(Counter(reason for one in records for reason in one.stop_reasons)),
        trial=trial_means(records),
        environments=_apart(played, cluster, seed),
    )


def _apart(played: Sequence[Scored], cluster: Cluster, seed: int) -> dict[str, Evaluation]:
    """Each environment's own evaluation, if there are several."""
    parts = _by_path(played)
    if len(parts) < 2:
        return {}
    return {path: _assess(part, cluster, seed) for path, part in parts.items()}


def _by_path(played: Sequence[Scored]) -> dict[str, list[Scored]]:
    parts: dict[str, list[Scored]] = {}
    for pair in sorted(played, key=lambda pair: pair[0].env_class_path):
        parts.setdefault(pair[0].env_class_path, []).append(pair)
    return parts


def _reference(pairs: Sequence[Scored]) -> tuple[float | None, float | None]:
    """(mean reference score, mean regret) over the environments with all scores known."""
    parts = [part for part in _by_path(pairs).values() if all(s is not None for _, s in part)]
    known = [(score, r.final_reward) for part in parts for r, score in part if score is not None]
    if not known:
        return None, None
    reference = mean([score for score, _ in known])
    return reference, reference - mean([reward for _, reward in known])


def _key(rollout: Rollout, cluster: Cluster) -> tuple[str, str]:
    return rollout.env_class_path, cluster(rollout.task_data)
