"""The single definition of figures about rollouts, for training, evaluation and reports.

A figure is a sum over a count, so that the figures of several environments can be added: a total
is over the environments that have the figure, each weighted by its own count. An environment has
`win_rate` if any of its episodes reports whether it was won, and an own metric or `informing` if
any of its steps contains it. A failed rollout only counts in `failed` and `stop/error`.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentsgym.tokens.tree import REASONS
from agentsgym.types import Episode, Rollout, Step
from agentsgym.types.foreign import number, truth

INFORMING = ("informing", "informing/free_shots", "informing/scored")

PER_STEP = ("truncated", "malformed")
_PER_ROLLOUT = (
    "reward",
    "win_rate",
    "steps",
    "agent_tokens",
    "tokens",
    "rows_per_rollout",
    "template_breaks",
)
_TAKEN = frozenset(
    {*PER_STEP, *_PER_ROLLOUT, *INFORMING, "reward_std", "failed", "exploration_gain"}
)

Sums = dict[str, tuple[float, float]]
"""Name of a figure to (sum, count)."""


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """The numbers of one rollout that figures need; small, so that ranks can exchange it.

    `env` is its class path, `steps` its number of actions, `turns` the number of actions and
    reflections. `win` is the share of scored episodes that were won (None: no episode reports it),
    `sums` has the sums of the environment's own metrics over the actions. `begins` counts the rows
    by why they began, `rewrites` those that the chat template began by what it changed. Of the
    actions, `free_steps` are in free shots; `marks` says whether the environment marked any as
    informing or not, and `informing` are the numbers of those that were, in free shots and in
    scored episodes.
    """

    env: str
    failed: bool
    reward: float
    win: float | None
    steps: int
    turns: int
    agent_tokens: int
    tokens: int
    truncated: int
    malformed: int
    stop_reasons: tuple[str, ...]
    episode_rewards: tuple[float, ...]
    episode_wins: tuple[bool | None, ...] = ()
    sums: Mapping[str, float] = field(default_factory=dict)
    rows: int = 0
    begins: Mapping[str, int] = field(default_factory=dict)
    rewrites: Mapping[str, int] = field(default_factory=dict)
    free_steps: int = 0
    marks: bool = False
    informing: tuple[int, int] = (0, 0)


def scored(rollout: Rollout) -> list[Episode]:
    """The episodes that are not free shots."""
    return [episode for episode in rollout.episodes if episode.score_weight > 0]


def record(rollout: Rollout) -> RolloutRecord:
    """Summarize a rollout. Wins and stop reasons are those of its scored episodes."""
    episodes = scored(rollout)
    turns = rollout.steps
    actions = [step for step in turns if step.kind == "action"]
    free = [step for e in rollout.episodes if not e.score_weight for step in e.actions]
    marks = [truth(step.info.get("informing")) for step in actions]
    informing = marks.count(True)
    informing_free = sum([truth(step.info.get("informing")) or False for step in free])
    every_win = tuple([episode.win for episode in rollout.episodes])
    wins = [w for e, w in zip(rollout.episodes, every_win, strict=True) if e.score_weight > 0]
    return RolloutRecord(
        env=rollout.env_class_path,
        failed=rollout.failed,
        reward=rollout.final_reward,
        win=sum(map(bool, wins)) / len(wins) if any(w is not None for w in wins) else None,
        steps=len(actions),
        turns=len(turns),
        agent_tokens=sum([row.choices for row in rollout.rows]),
        tokens=sum([len(row.token_ids) for row in rollout.rows]),
        truncated=sum([step.truncated for step in turns]),
        malformed=sum([step.malformed for step in actions]),
        stop_reasons=("error",) if rollout.failed else tuple(e.stop_reason for e in episodes),
        episode_rewards=tuple(episode.reward for episode in rollout.episodes),
        episode_wins=every_win,
        sums=_own_metrics(actions),
        rows=len(rollout.rows),
        begins=Counter(row.begins for row in rollout.rows),
        rewrites=Counter(row.rewrites for row in rollout.rows if row.rewrites),
        free_steps=len(free),
        marks=any(mark is not None for mark in marks),
        informing=(informing_free, informing - informing_free),
    )


def _own_metrics(steps: Iterable[Step]) -> dict[str, float]:
    """Sums of `info["metrics"]`, ignoring values that are not finite numbers."""
    sums: dict[str, float] = {}
    for step in steps:
        metrics = step.info.get("metrics")
        for name, value in metrics.items() if isinstance(metrics, dict) else ():
            read = number(value)
            if read is not None and math.isfinite(read):
                key = f"metrics/{name}" if name in _TAKEN else str(name)
                sums[key] = sums.get(key, 0.0) + read
    return sums


def summarize(
    records: Sequence[RolloutRecord], *, per_environment: bool | None = None
) -> dict[str, float]:
    """Figures of rollouts.

    `reward`, `reward_std`, `win_rate`, `steps`, `agent_tokens` and `tokens` per rollout, and where
    tokens were recorded `rows_per_rollout`, `template_breaks` and, where there are some, `notes`
    (from which an episode went on), `template_breaks/<what was rewritten>` and
    `call_breaks/<why a program's call began a row>`; `truncated` and `malformed` and the
    environments' own metrics per step, and where an environment marks them the share of informing
    actions (`informing`, and with free shots also `informing/free_shots` and `informing/scored`);
    `stop/<reason>` as shares of episodes; `failed` as share of rollouts; and for trials of several
    episodes `episode_<k>/reward`, `episode_<k>/win_rate` and `exploration_gain` (last minus first).
    With `per_environment` (None: where there are several) also `env/<class path>/<figure>`.
    """
    if not records:
        return {}
    parts = by_environment(records)
    values = _figures(parts.values())
    if per_environment or (per_environment is None and len(parts) > 1):
        for name, part in parts.items():
            own = _figures([part])
            values |= {f"env/{name}/{figure}": value for figure, value in own.items()}
    return values


def by_environment(records: Sequence[RolloutRecord]) -> dict[str, list[RolloutRecord]]:
    """The records of each environment, by class path."""
    parts: dict[str, list[RolloutRecord]] = {}
    for one in sorted(records, key=lambda one: one.env):
        parts.setdefault(one.env, []).append(one)
    return parts


def step_means(records: Sequence[RolloutRecord]) -> dict[str, float]:
    """The figures per step: `truncated`, `malformed`, the environments' own metrics and the shares
    of informing actions."""
    parts = by_environment([one for one in records if not one.failed])
    means = _means(map(_step_sums, parts.values()))
    return {name: value for name, value in sorted(means.items()) if math.isfinite(value)}


def trial_means(records: Sequence[RolloutRecord]) -> dict[str, float]:
    """The figures of trials of several episodes: `episode_<k>/reward`, `episode_<k>/win_rate` and
    `exploration_gain`. Empty if no trial has several."""
    parts = by_environment([one for one in records if not one.failed])
    return _means(_totals(_by_episode(part)) for part in parts.values())


def reported_wins(records: Sequence[RolloutRecord]) -> list[float | None]:
    """Each rollout's share of scored episodes that were won; None for failed rollouts and for
    environments that report no wins. In an environment that reports wins, an episode that a limit
    ended without a report counts as not won."""
    telling = {one.env for one in records if not one.failed and one.win is not None}
    return [None if one.failed or one.env not in telling else one.win or 0.0 for one in records]


def mean(values: Sequence[float]) -> float:
    """The mean; NaN without values."""
    return sum(values) / len(values) if values else math.nan


def _figures(parts: Iterable[Sequence[RolloutRecord]]) -> dict[str, float]:
    parts = list(parts)
    every = [one for part in parts for one in part]
    rewards = [one.reward for one in every if not one.failed]
    with np.errstate(over="ignore", invalid="ignore"):
        spread = float(np.std(rewards)) if rewards else math.nan
    values = _means(_sums(part) for part in parts)
    return values | {"reward_std": spread} | _stop_shares(every)


def _means(parts: Iterable[Sums]) -> dict[str, float]:
    """Each figure over the parts that have it."""
    totals: Sums = {}
    for part in parts:
        for name, (value, count) in part.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = before[0] + value, before[1] + count
    return {name: v / count if count else math.nan for name, (v, count) in totals.items()}


def _sums(records: Sequence[RolloutRecord]) -> Sums:
    """The figures of one environment."""
    live = [one for one in records if not one.failed]
    wins = [win for win in reported_wins(live) if win is not None]
    per_rollout: dict[str, list[Any]] = {
        "reward": [one.reward for one in live],
        "steps": [one.steps for one in live],
        "agent_tokens": [one.agent_tokens for one in live],
        "tokens": [one.tokens for one in live],
        "failed": [one.failed for one in records],
        **({"win_rate": wins} if wins else {}),
        **_by_episode(live),
    }
    if any(one.rows for one in live):
        per_rollout["rows_per_rollout"] = [one.rows for one in live]
        per_rollout["template_breaks"] = [one.begins.get("template", 0) for one in live]
        if any("note" in one.begins for one in live):
            per_rollout["notes"] = [one.begins.get("note", 0) for one in live]
        for what in sorted({what for one in live for what in one.rewrites}):
            per_rollout[f"template_breaks/{what}"] = [one.rewrites.get(what, 0) for one in live]
        for why in sorted(REASONS.keys() & {why for one in live for why in one.begins}):
            per_rollout[f"call_breaks/{why}"] = [one.begins.get(why, 0) for one in live]
    return _totals(per_rollout) | _step_sums(live)


def _totals(values: Mapping[str, Sequence[float]]) -> Sums:
    return {name: (float(sum(numbers)), len(numbers)) for name, numbers in values.items()}


def _step_sums(live: Sequence[RolloutRecord]) -> Sums:
    steps = sum(one.steps for one in live)
    names = sorted({name for one in live for name in one.sums})
    return {
        "truncated": (sum(one.truncated for one in live), sum(one.turns for one in live)),
        "malformed": (sum(one.malformed for one in live), steps),
        **{name: (sum(one.sums.get(name, 0.0) for one in live), steps) for name in names},
        **_informing_sums(live, steps),
    }


def _by_episode(live: Sequence[RolloutRecord]) -> dict[str, list[float]]:
    """Figures of trials that have several episodes."""
    trials = [one for one in live if len(one.episode_rewards) > 1]
    values: dict[str, list[float]] = {}
    for k in range(max((len(one.episode_rewards) for one in trials), default=0)):
        having = [one for one in trials if len(one.episode_rewards) > k]
        values[f"episode_{k + 1}/reward"] = [one.episode_rewards[k] for one in having]
        wins = [one.episode_wins[k] for one in having]
        if any(win is not None for win in wins):
            values[f"episode_{k + 1}/win_rate"] = [float(bool(win)) for win in wins]
    if trials:
        gains = [one.episode_rewards[-1] - one.episode_rewards[0] for one in trials]
        values["exploration_gain"] = gains
    return values


def _stop_shares(records: Sequence[RolloutRecord]) -> dict[str, float]:
    reasons = Counter(reason for one in records for reason in one.stop_reasons)
    return {f"stop/{reason}": n / reasons.total() for reason, n in sorted(reasons.items())}


def _informing_sums(live: Sequence[RolloutRecord], steps: int) -> Sums:
    """The informing actions, and where there are free shots those in them and in the scored
    episodes. Empty if the environment marks no step."""
    if not any(one.marks for one in live):
        return {}
    free, scored = (sum(one.informing[k] for one in live) for k in (0, 1))
    free_steps = sum(one.free_steps for one in live)
    shares = ((free + scored, steps), (free, free_steps), (scored, steps - free_steps))
    return dict(zip(INFORMING, shares if free_steps else shares[:1], strict=False))
