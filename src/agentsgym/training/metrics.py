"""What is logged about rollouts. Metrics count rollouts, never rows."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentsgym.types import Episode, Rollout, Step, count_steps


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """The numbers of one rollout that metrics need; small, so that ranks can exchange it."""

    failed: bool
    final_reward: float
    win: float | None
    steps: int
    agent_tokens: int
    tokens: int
    truncated: int
    malformed: int
    stop_reasons: tuple[str, ...]
    episode_rewards: tuple[float, ...]
    episode_wins: tuple[bool | None, ...] = ()
    sums: Mapping[str, float] = field(default_factory=dict)


def record(rollout: Rollout) -> RolloutRecord:
    """Summarise a rollout. Wins and stop reasons are those of its scored episodes."""
    scored = [episode for episode in rollout.episodes if episode.score_weight > 0]
    steps = [step for episode in rollout.episodes for step in episode.steps]
    wins = [1.0 if e.win else 0.0 for e in scored if e.win is not None]
    return RolloutRecord(
        failed=rollout.failed,
        final_reward=rollout.final_reward,
        win=sum(wins) / len(scored) if wins else None,
        steps=count_steps(rollout.episodes),
        agent_tokens=sum(span.length for row in rollout.rows for span in row.spans),
        tokens=sum(len(row.token_ids) for row in rollout.rows),
        truncated=sum(step.truncated for step in steps),
        malformed=sum(step.malformed for step in steps),
        stop_reasons=_stop_reasons(scored, rollout.failed),
        episode_rewards=tuple(episode.reward for episode in rollout.episodes),
        episode_wins=tuple(episode.win for episode in rollout.episodes),
        sums=_sum_metrics(steps),
    )


def _stop_reasons(scored: Sequence[Episode], failed: bool) -> tuple[str, ...]:
    return ("error",) if failed else tuple(episode.stop_reason for episode in scored)


def _sum_metrics(steps: Iterable[Step]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for step in steps:
        for name, value in step.info.get("metrics", {}).items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def summarise(records: Sequence[RolloutRecord]) -> dict[str, float]:
    """Mean figures over rollouts.

    `reward`, `reward_std`, `win_rate` (where the environment tells), `steps`, `agent_tokens` and
    `tokens` per rollout, `truncated` and `malformed` and the environment's own metrics as shares
    of steps, `stop/<reason>` as shares of episodes, `failed` as share of rollouts, and with
    several episodes `episode_<k>/reward`, `episode_<k>/win_rate` and `exploration_gain` (last minus
    first).
    """
    if not records:
        return {}
    live = [r for r in records if not r.failed]
    rewards = [r.final_reward for r in live]
    steps = max(sum(r.steps for r in records), 1)
    values = {
        "reward": _mean(rewards),
        "reward_std": float(np.std(rewards)) if rewards else math.nan,
        "steps": _mean([r.steps for r in live]),
        "agent_tokens": _mean([r.agent_tokens for r in live]),
        "tokens": _mean([r.tokens for r in live]),
        "truncated": sum(r.truncated for r in records) / steps,
        "malformed": sum(r.malformed for r in records) / steps,
        "failed": _mean([float(r.failed) for r in records]),
    }
    if any(r.win is not None for r in live):
        # Where wins are told at all, an episode that a limit ended without a word is none.
        values["win_rate"] = _mean([r.win or 0.0 for r in live])
    names = sorted({name for r in records for name in r.sums})
    values |= {name: sum(r.sums.get(name, 0.0) for r in records) / steps for name in names}
    return values | _stop_shares(records) | _by_episode(live)


def _stop_shares(records: Sequence[RolloutRecord]) -> dict[str, float]:
    reasons = Counter(reason for r in records for reason in r.stop_reasons)
    total = max(sum(reasons.values()), 1)
    return {f"stop/{reason}": number / total for reason, number in sorted(reasons.items())}


def _by_episode(live: Sequence[RolloutRecord]) -> dict[str, float]:
    episodes = max((len(r.episode_rewards) for r in live), default=0)
    if episodes < 2:
        return {}
    means = [
        _mean([r.episode_rewards[k] for r in live if len(r.episode_rewards) > k])
        for k in range(episodes)
    ]
    values = {f"episode_{k + 1}/reward": mean for k, mean in enumerate(means)}
    for k in range(episodes):
        wins = [r.episode_wins[k] for r in live if len(r.episode_wins) > k]
        if any(win is not None for win in wins):
            values[f"episode_{k + 1}/win_rate"] = _mean([float(bool(win)) for win in wins])
    return values | {"exploration_gain": means[-1] - means[0]}


def mean_of_sums(parts: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """Means over the tokens of all chunks and ranks together, however they were divided.

    Each part maps a name to (sum, count). A ratio's `_mean` and `_square` become its effective
    sample size `_ess` = (Σρ)² / (n·Σρ²): 1 on-policy, towards 0 where few tokens carry all.
    """
    totals: dict[str, tuple[float, float]] = {}
    for part in parts:
        for name, (value, number) in part.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = before[0] + value, before[1] + number
    means = {name: value / number for name, (value, number) in totals.items() if number}
    for name in [name for name in means if name.endswith("_square")]:
        mean, square = means.pop(name.replace("_square", "_mean")), means.pop(name)
        means[name.replace("_square", "_ess")] = mean**2 / square if square else 0.0
    return means


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
