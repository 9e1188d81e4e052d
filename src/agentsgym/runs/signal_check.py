"""Whether a model can learn from its own games at all: legal actions, and differing rewards."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentsgym.credit.table import differ
from agentsgym.envs import ConfigError
from agentsgym.evaluation import rollout_requests
from agentsgym.evaluation.metrics import record, step_means
from agentsgym.types import Rollout

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer

PROBE = "probe"
"""The phase of a model's own games on training tasks, before the first evaluation or around a warm
start."""

LEAST_LEGAL, LEAST_SIGNAL = 0.1, 0.05
"""Shares of legal actions and of groups with signal; below both there is nothing to learn from."""
MOST_TASKS = 8
"""Tasks at most that are played before the first evaluation, a group of games each."""


class NoSignal(ConfigError):
    """Training was stopped at its beginning; the message says what to do."""


def _shares(figures: Mapping[str, float]) -> tuple[float, float]:
    """Of actions that are neither `malformed` nor `unparsed`, and of groups whose rewards
    differ."""
    legal = 1.0 - figures.get("malformed", 0.0) - figures.get("unparsed", 0.0)
    return max(0.0, legal), 1.0 - figures.get("groups_without_signal", 0.0)


def signal_text(figures: Mapping[str, float]) -> str:
    """Both shares in words."""
    legal, signal = _shares(figures)
    return f"{legal:.1%} of the actions are legal, {signal:.0%} of the groups have signal"


def check_signal(figures: Mapping[str, float], when: str) -> None:
    """Raise NoSignal if both shares are near zero in games played `when`; not without figures."""
    legal, signal = _shares(figures)
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
    `groups_without_signal`, the share of groups whose rewards are equal. All ranks must call it;
    the figures are over the games of all, and the rollouts are this rank's."""
    args = trainer.args
    requests = rollout_requests(
        rows,
        tasks * args.num_generations,
        rollouts_per_task=args.num_generations,
        seed=seed,
        max_rollout_tokens=args.max_rollout_tokens,
    )
    collector, step = trainer.collector, trainer.state.global_step
    rollouts = trainer.play(collector.share(requests), step, collector.train_sampling)
    played = trainer.ranks.gather([(rollout.group, record(rollout)) for rollout in rollouts])
    rewards: dict[int, list[float]] = defaultdict(list)
    for group, one in played:
        if not one.failed:
            rewards[group].append(one.reward)
    equal = sum(not differ(values) for values in rewards.values())
    figures = step_means([one for _, one in played])
    return figures | {"groups_without_signal": equal / max(1, len(rewards))}, rollouts
