"""A few games of the model on training tasks: how many of its actions are legal, and whether
groups of its games differ in reward."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentsgym.envs.dataset import check_row
from agentsgym.evaluation import default_cluster, select
from agentsgym.evaluation.metrics import record, step_means
from agentsgym.types import Rollout, RolloutRequest, session_seed


def probe(
    trainer: Any, rows: Sequence[Mapping[str, Any]], tasks: int, seed: int
) -> tuple[dict[str, float], list[Rollout]]:
    """Figures of a group of games on each of `tasks` rows, with training's sampling settings, and
    the games."""
    chosen = select(rows, tasks, seed=seed, cluster=default_cluster)
    requests = [
        RolloutRequest.of(
            check_row(rows[number], number),
            group,
            index,
            session_seed(seed, "probe", group, index),
            max_rollout_tokens=trainer.args.max_rollout_tokens,
        )
        for group, number in enumerate(chosen)
        for index in range(trainer.args.num_generations)
    ]
    trainer.push_weights(trainer.state.global_step)
    rollouts = trainer.collector.train(requests)
    return figures_of(rollouts), rollouts


def figures_of(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """`malformed`, `truncated` and the environment's own figures as means per action, and
    `groups_without_signal`, the share of groups whose rewards are equal."""
    live = [rollout for rollout in rollouts if not rollout.failed]
    figures = step_means([record(rollout) for rollout in live])
    rewards: dict[int, set[float]] = {}
    for rollout in live:
        rewards.setdefault(rollout.group, set()).add(rollout.final_reward)
    equal = sum(len(found) < 2 for found in rewards.values())
    return figures | {"groups_without_signal": equal / max(1, len(rewards))}
