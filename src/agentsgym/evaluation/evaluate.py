"""Evaluates an agent: which rollouts it plays, their figures with intervals, and regret.

There is one way from tasks to figures: `rollout_requests` says what is played with which noise, and
`assess` makes the figures. So equal tasks and seeds give equal figures before, during and after
training and in `agentsgym eval`.
"""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from agentsgym.agents import SeededAgent
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.envs.base import UNINFORMED
from agentsgym.envs.dataset import check_row, pool_of
from agentsgym.evaluation.intervals import Interval, mean_interval, rate_interval
from agentsgym.evaluation.metrics import mean, record, reported_wins, step_means, trial_means
from agentsgym.rollout import play
from agentsgym.rollout.drive import tokenizer_of
from agentsgym.types import Agent, Rollout, RolloutRequest, Trust, session_seed
from agentsgym.types.foreign import checked_number
from agentsgym.types.text import finite, named_error, short_repr

logger = logging.getLogger(__name__)

Cluster = Callable[[Mapping[str, Any]], str]
"""Names the cluster of a task."""

_MOST_SEEN = 100_000
_SEEN_OF_LARGE = 10_000


# -- what is played --------------------------------------------------------------------------------


def default_cluster(task_data: Mapping[str, Any]) -> str:
    """Tasks with the same `solution` are one cluster; without a solution, equal tasks are.

    Tasks that cannot be written as JSON (too deep, or recursive) are one cluster too.
    """
    key = task_data.get("solution", task_data)
    if isinstance(key, str):
        return key
    try:
        return json.dumps(key, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        return "what cannot be written"


def cluster_of(rollout: Rollout) -> tuple[str, str]:
    """The cluster of a rollout's task: its environment, and `default_cluster`."""
    return rollout.env_class_path, default_cluster(rollout.task_data)


def select(
    rows: Sequence[Mapping[str, Any]],
    count: int,
    *,
    seed: int = 0,
    cluster: Cluster = default_cluster,
) -> list[int]:
    """Indices of `count` rows, drawn without replacement and spread evenly over the clusters.

    Every cluster is drawn once before any is drawn a second time. If there are no more than
    `count` rows, all are returned in their order. Of more than 100,000 rows, 10,000 or `count` that
    are drawn at random are looked at.
    """
    size, rng = len(rows), np.random.default_rng(seed)
    if size <= count:
        return list(range(size))
    if size > _MOST_SEEN:
        drawn = rng.choice(size, min(size, max(_SEEN_OF_LARGE, count)), replace=False)
    else:
        drawn = rng.permutation(size)
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index in drawn.tolist():
        row = check_row(rows[index], index)
        members[row["env_class_path"], cluster(row["task_data"])].append(index)
    rounds = [
        (turn, position, index)
        for position, indices in enumerate(members.values())
        for turn, index in enumerate(indices)
    ]
    return sorted(index for _, _, index in sorted(rounds)[:count])


def rollout_requests(
    rows: Sequence[Mapping[str, Any]],
    rollouts: int,
    *,
    rollouts_per_task: int = 1,
    seed: int = 0,
    cluster: Cluster = default_cluster,
    max_rollout_tokens: int | None = None,
) -> list[RolloutRequest]:
    """Requests for `rollouts` rollouts over the rows, task by task.

    Each chosen task is played `rollouts_per_task` times, or more often if there are too few rows.
    The noise of a rollout depends only on (`seed`, its row's number, its number), so two agents
    play the same tasks with the same noise.
    """
    for name, value in (("rollouts", rollouts), ("rollouts_per_task", rollouts_per_task)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if isinstance(rows, Mapping | str) or not hasattr(rows, "__getitem__"):
        raise ValueError(
            f"rows must be a list or dataset of rows, got {short_repr(rows, 200)}"
            + ("; pass one of its values" if isinstance(rows, Mapping) else "")
        )
    if not len(rows):
        raise ValueError("there are no tasks to evaluate on")
    chosen = select(rows, -(-rollouts // rollouts_per_task), seed=seed, cluster=cluster)
    base, more = divmod(rollouts, len(chosen))
    checked = [check_row(rows[number], number) for number in chosen]
    return [
        RolloutRequest.of(
            checked[group],
            group,
            index,
            session_seed(seed, "evaluation", number, index),
            max_rollout_tokens=max_rollout_tokens,
        )
        for group, number in enumerate(chosen)
        for index in range(base + (group < more))
    ]


def evaluate(
    rows: Sequence[Mapping[str, Any]],
    agent: Agent,
    *,
    rollouts: int = 256,
    rollouts_per_task: int = 1,
    seed: int = 0,
    envs: EnvPool | Iterable[MultistepEnv] | None = None,
    max_rollout_tokens: int | None = None,
    trust: Trust = False,
) -> "Played":
    """Let `agent` play `rollouts` rollouts on rows of the dataset schema.

    The same `seed` gives any agent the same tasks and the same noise. `envs` are environment
    objects that play their rows, or a pool that keeps environments across calls. Raises ValueError
    without rows, and UnknownEnvironment or ConfigError before any play.
    """
    requests = rollout_requests(
        rows,
        rollouts,
        rollouts_per_task=rollouts_per_task,
        seed=seed,
        max_rollout_tokens=max_rollout_tokens,
    )
    pool = pool_of(envs, tokenizer_of(agent), trust)
    return evaluate_requests(requests, agent, pool, seed=seed)


def evaluate_requests(
    requests: Sequence[RolloutRequest],
    agent: Agent,
    pool: EnvPool,
    *,
    seed: int = 0,
    stored: Mapping[str, Rollout] | None = None,
    on_rollout: Callable[[Rollout], None] | None = None,
) -> "Played":
    """Let `agent` play these requests (see `rollout_requests`).

    `stored` has rollouts that were played before, by session id; they are not played again.
    `on_rollout` is called with each new rollout as soon as it is over. A `SeededAgent` plays each
    rollout with noise from the rollout's own seed.
    """
    known = dict(stored or {})
    left = [request for request in requests if request.session_id not in known]
    if isinstance(agent, SeededAgent):
        parts = [([request], agent.with_seed(request.seed)) for request in left]
    else:
        parts = [(left, agent)]
    for part, player in parts:
        for rollout in play(part, player, pool, on_rollout=on_rollout):
            known[rollout.session_id] = rollout
    rollouts = [known[request.session_id] for request in requests]
    return assess_played(rollouts, pool, seed=seed)


# -- figures ---------------------------------------------------------------------------------------


class Evaluation(BaseModel):
    """The figures of some rollouts, also as they are stored. Rates are over the rollouts that did
    not fail; unknown numbers are None.

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

    model_config = ConfigDict(extra="forbid", frozen=True)

    win_rate: float | None
    ci95: Interval | None
    mean_steps: float | None
    regret: float | None
    rollouts: int
    clusters: int
    tasks: int
    reward: float | None
    reward_ci95: tuple[float | None, float | None]
    reference: float | None
    failures: int
    metrics: dict[str, float] = Field(default_factory=dict)
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    trial: dict[str, float] = Field(default_factory=dict)
    environments: dict[str, "Evaluation"] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Played:
    """An evaluation and the rollouts it was computed from."""

    evaluation: Evaluation
    rollouts: tuple[Rollout, ...]


def assess_played(rollouts: Sequence[Rollout], pool: EnvPool, *, seed: int = 0) -> Played:
    """The evaluation of rollouts, with the reference scores of their tasks."""
    scores: dict[int, float | None] = {}
    for rollout in rollouts:
        if not rollout.failed and rollout.group not in scores:
            env = pool.of(rollout.env_class_path, rollout.env_config)
            scores[rollout.group] = known_reference(env, rollout.task_data)
    references = [scores.get(rollout.group) for rollout in rollouts]
    return Played(assess(rollouts, references, seed=seed), tuple(rollouts))


def known_reference(env: MultistepEnv, task_data: Mapping[str, Any]) -> float | None:
    """The expected reward of the best known play on a task; None if it is unknown, or a warning
    says why not."""
    try:
        score = env.reference_score(task_data)
        return None if score is None else checked_number(score, "reference_score")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's environment may raise anything
        logger.warning("%s: the reference score of a task: %s", env.name, named_error(error))
        return None


def assess(
    rollouts: Sequence[Rollout],
    references: Sequence[float | None] | None = None,
    *,
    seed: int = 0,
) -> Evaluation:
    """The figures of rollouts that are already played; `references` has one score for each."""
    scores = references or [None] * len(rollouts)
    return _assess(list(zip(rollouts, scores, strict=True)), seed)


Scored = tuple[Rollout, float | None]
"""A rollout and its reference score."""


def _assess(played: Sequence[Scored], seed: int) -> Evaluation:
    pairs = [(rollout, score) for rollout, score in played if not rollout.failed]
    live = [rollout for rollout, _ in pairs]
    keys = list(map(cluster_of, live))
    records = [record(rollout) for rollout in live]
    rewards = [one.reward for one in records]
    wins = [(w, key) for w, key in zip(reported_wins(records), keys, strict=True) if w is not None]
    reference, regret = _reference(pairs)
    parts = _by_path(played)
    low, high = mean_interval(rewards, keys, seed=seed)
    return Evaluation(
        rollouts=len(played),
        tasks=len({rollout.group for rollout, _ in played}),
        clusters=len({cluster_of(rollout) for rollout, _ in played}),
        failures=len(played) - len(live),
        win_rate=mean([win for win, _ in wins]) if wins else None,
        ci95=rate_interval(*zip(*wins, strict=True), seed=seed) if wins else None,
        reward=finite(mean(rewards)),
        reward_ci95=(finite(low), finite(high)),
        mean_steps=finite(mean([one.steps for one in records])),
        reference=reference,
        regret=regret,
        metrics=step_means(records),
        stop_reasons=dict(Counter(reason for one in records for reason in one.stop_reasons)),
        trial=trial_means(records),
        environments={path: _assess(part, seed) for path, part in parts.items() if len(parts) > 1},
    )


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
    return finite(reference), finite(reference - mean([reward for _, reward in known]))


# -- the value of information ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Information:
    """The `share` and its 95 % interval: 1 for the best play, 0 for the best play that never
    informs itself, negative for less than that."""

    share: float
    ci95: Interval


def information(evaluation: Evaluation, references: Mapping[str, float]) -> Information | None:
    """(reward − without) / (best − without) of an evaluation, its interval on the same scale;
    `references` are mean scores of other players on the same tasks (`other_references`).

    None if the environment does not know both plays, if exploring is worth nothing, or if a
    rollout failed: those that are left would be a choice by their course.
    """
    without, best = references.get(UNINFORMED), evaluation.reference
    low, high = evaluation.reward_ci95
    if without is None or best is None or best <= without or evaluation.failures:
        return None
    if evaluation.reward is None or low is None or high is None:
        return None
    share, lowest, highest = (
        (value - without) / (best - without) for value in (evaluation.reward, low, high)
    )
    return Information(share, (lowest, highest))
