"""What an agent is worth: rates with intervals, and regret against the best known play."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsgym.envs import EnvPool
from agentsgym.evaluation.intervals import cluster_bootstrap, rate_interval
from agentsgym.evaluation.tasks import Cluster, default_cluster, places
from agentsgym.rollout import is_engine_agent, play
from agentsgym.types import Agent, AllowImports, AllowPaths, Episode, Rollout, count_steps

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures of some rollouts. Rates are over the `episodes` − `failures` that ended well.

    `win_rate` and its `ci95` are None where the environment does not tell wins; the intervals
    come from a bootstrap over the `clusters` (tasks with the same solution; see `rate_interval`).
    `mean_steps` counts actions per rollout. `reference` is the mean score of the best known play
    on the same tasks and `regret` what the reward falls short of it; both None where any task's
    is unknown. `metrics` are the environment's own figures, `truncated` and `malformed`, each the
    mean per step. `stop_reasons` counts scored episodes.
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
    envs: EnvPool | None = None,
    max_rollout_tokens: int | None = None,
    allow_imports: AllowImports = False,
    allow_paths: AllowPaths = (),
) -> Played:
    """Let `agent` play `episodes` rollouts on rows of the dataset schema.

    The same `seed` gives any agent the same tasks and the same noise. Raises ValueError without
    rows, UnknownEnvironment or ConfigError before anything is played.
    """
    chosen = places(rows, episodes, rollouts_per_task=rollouts_per_task, seed=seed, cluster=cluster)
    tokenizer = agent.engine.tokenizer if is_engine_agent(agent) else None
    pool = envs or EnvPool(tokenizer, allow_imports, allow_paths=allow_paths)
    rollouts = play(chosen, agent, pool, max_rollout_tokens=max_rollout_tokens)
    by_task = {
        place.group: pool.get(place.row).reference_score(place.row["task_data"])
        for place in chosen
        if place.index == 0
    }
    references = [by_task[place.group] for place in chosen]
    return Played(assess(rollouts, references, cluster=cluster, seed=seed), tuple(rollouts))


def assess(
    rollouts: Sequence[Rollout],
    references: Sequence[float | None] | None = None,
    *,
    cluster: Cluster = default_cluster,
    seed: int = 0,
) -> Evaluation:
    """The figures of rollouts that were played already; `references` has one score for each."""
    scores = list(references or [None] * len(rollouts))
    pairs = [(r, s) for r, s in zip(rollouts, scores, strict=True) if not r.failed]
    live = [rollout for rollout, _ in pairs]
    keys = [(rollout.env_class_path, cluster(rollout.task_data)) for rollout in live]
    rewards = [rollout.final_reward for rollout in live]
    wins = _wins(live)
    known = [score for _, score in pairs if score is not None]
    reference = _mean(known) if known and len(known) == len(live) else None
    return Evaluation(
        episodes=len(rollouts),
        tasks=len({rollout.group for rollout in rollouts}),
        clusters=len({(r.env_class_path, cluster(r.task_data)) for r in rollouts}),
        failures=len(rollouts) - len(live),
        win_rate=None if wins is None else _mean(wins),
        ci95=None if wins is None else rate_interval(wins, keys, seed=seed),
        reward=_mean(rewards),
        reward_ci95=cluster_bootstrap(rewards, keys, seed=seed),
        mean_steps=_mean([count_steps(rollout.episodes) for rollout in live]),
        reference=reference,
        regret=None if reference is None else reference - _mean(rewards),
        metrics=_step_shares(live),
        stop_reasons=_stop_reasons(live),
    )


def _wins(rollouts: Sequence[Rollout]) -> list[float] | None:
    """Each rollout's share of scored episodes that were won.

    None unless the environments tell wins. One that tells them only where an episode ends by its
    own rules says nothing where a limit ended it: that is no win.
    """
    telling = {r.env_class_path for r in rollouts for e in _scored(r) if e.win is not None}
    if not rollouts or any(rollout.env_class_path not in telling for rollout in rollouts):
        return None
    return [_mean([float(bool(e.win)) for e in _scored(rollout)]) for rollout in rollouts]


def _scored(rollout: Rollout) -> list[Episode]:
    return [episode for episode in rollout.episodes if episode.score_weight > 0]


def _step_shares(rollouts: Sequence[Rollout]) -> dict[str, float]:
    steps = [step for r in rollouts for episode in r.episodes for step in episode.steps]
    if not steps:
        return {}
    sums: Counter[str] = Counter()
    for step in steps:
        sums["truncated"] += step.truncated
        sums["malformed"] += step.malformed
        for name, value in step.info.get("metrics", {}).items():
            sums[name] += value
    return {name: float(total) / len(steps) for name, total in sorted(sums.items())}


def _stop_reasons(rollouts: Sequence[Rollout]) -> dict[str, int]:
    return dict(Counter(episode.stop_reason for r in rollouts for episode in _scored(r)))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
