"""Rollouts from outdated weights."""

from collections.abc import Sequence
from dataclasses import replace

from agentsgym.types import Rollout, Row


def age(rollout: Rollout, step: int, updates: int) -> float:
    """How many generations old its weights are; a generation is `updates` optimizer steps."""
    return max(0, step - rollout.policy_version) / updates


def drop_stale(
    rollouts: Sequence[Rollout], step: int, updates: int, most: int | None
) -> list[Rollout]:
    """Mark rollouts older than `most` generations as failed, so that they carry no loss; with
    `most=None` all are kept, and the sampler's ratio corrects them."""
    if most is None:
        return list(rollouts)
    return [
        _dropped(rollout, most) if age(rollout, step, updates) > most else rollout
        for rollout in rollouts
    ]


def _dropped(rollout: Rollout, most: int) -> Rollout:
    if rollout.failed:
        return rollout
    reason = f"dropped: sampled by version {rollout.policy_version}, max_staleness={most}"
    return replace(rollout, error=reason, rows=tuple(map(_masked, rollout.rows)))


def _masked(row: Row) -> Row:
    length = len(row.token_ids)
    return replace(row, agent_token_mask=(0,) * length, per_token_rewards=(0.0,) * length)
