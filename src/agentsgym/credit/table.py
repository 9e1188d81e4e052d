"""The step table: all that credit assignment may know, as arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agentsgym.types import Rollout, Step

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepTable:
    """R rollouts and their N steps.

    Per rollout, shape (R,): `group` int64 (rollouts with equal numbers are compared), `live` bool
    (False where the rollout failed), `final_reward` float64 (NaN where it failed), `env` object
    (which environment it played). Per step, shape (N,): `rollout` int64 (index into the former),
    `episode` and `step` int64, `reward` float64, `score_weight` float64 (0 in free shots),
    `tokens` int64 (agent tokens), `reflection` bool, `anchor` object (str: the state that the
    step was taken in, as the environment names it, else its normalised observation).
    """

    group: Ints
    live: NDArray[np.bool_]
    final_reward: Floats
    env: NDArray[np.object_]
    rollout: Ints
    episode: Ints
    step: Ints
    reward: Floats
    score_weight: Floats
    tokens: Ints
    reflection: NDArray[np.bool_]
    anchor: NDArray[np.object_]

    def __post_init__(self) -> None:
        bad = np.flatnonzero(~np.isfinite(self.reward) & self.live[self.rollout])
        if len(bad):
            k = int(bad[0])
            raise ValueError(
                f"reward of step {self.step[k]}, episode {self.episode[k]}, rollout "
                f"{self.rollout[k]} is {self.reward[k]}; rewards must be finite"
            )


def table_of(rollouts: Sequence[Rollout]) -> StepTable:
    """The step table of some rollouts, steps in the order in which they were played.

    Raises ValueError where a live rollout's reward is NaN or infinite.
    """
    tokens = [_tokens_by_step(rollout) for rollout in rollouts]
    steps = [
        (r, episode, step, tokens[r].get((episode.index, step.index), 0))
        for r, rollout in enumerate(rollouts)
        for episode in rollout.episodes
        for step in episode.steps
    ]
    return StepTable(
        group=np.array([r.group for r in rollouts], dtype=np.int64),
        live=np.array([not r.failed for r in rollouts], dtype=np.bool_),
        final_reward=np.array([_final_reward(r) for r in rollouts], dtype=np.float64),
        env=np.array([r.env_class_path for r in rollouts], dtype=np.object_),
        rollout=np.array([r for r, _, _, _ in steps], dtype=np.int64),
        episode=np.array([e.index for _, e, _, _ in steps], dtype=np.int64),
        step=np.array([s.index for _, _, s, _ in steps], dtype=np.int64),
        reward=np.array([s.reward for _, _, s, _ in steps], dtype=np.float64),
        score_weight=np.array([e.score_weight for _, e, _, _ in steps], dtype=np.float64),
        tokens=np.array([count for _, _, _, count in steps], dtype=np.int64),
        reflection=np.array([s.kind == "reflection" for _, _, s, _ in steps], dtype=np.bool_),
        anchor=np.array([_anchor(s) for _, _, s, _ in steps], dtype=np.object_),
    )


def concatenate(tables: Sequence[StepTable]) -> StepTable:
    """One table of several (for instance of all ranks); group numbers must be global already."""
    offsets = np.cumsum([0, *(len(table.group) for table in tables[:-1])])
    rollout = [table.rollout + offset for table, offset in zip(tables, offsets, strict=True)]
    return StepTable(
        rollout=np.concatenate(rollout),
        **{
            name: np.concatenate([getattr(table, name) for table in tables])
            for name in StepTable.__slots__
            if name != "rollout"
        },
    )


def scale_steps(table: StepTable) -> tuple[StepTable, Floats]:
    """Divide the rewards of each environment by the standard deviation of its final rewards.

    Returns the scaled table and each rollout's factor, shape (R,); 1.0 where an environment's
    rewards do not differ. For mixed environments whose rewards have different scales; done per
    step, before anything is spread over tokens.
    """
    factors = np.ones(len(table.group))
    for env in set(table.env[table.live]):
        members = (table.env == env) & table.live
        rewards = table.final_reward[members]
        deviation = float(rewards.std(ddof=1)) if len(rewards) > 1 else 0.0
        # Equal rewards have a deviation of some 1e-17, which is rounding and no scale.
        differ = deviation > 1e-9 * float(np.abs(rewards).max(initial=0.0))
        factors[table.env == env] = 1.0 / deviation if differ else 1.0
    scaled = replace(
        table,
        final_reward=table.final_reward * factors,
        reward=table.reward * factors[table.rollout],
    )
    return scaled, factors


def _final_reward(rollout: Rollout) -> float:
    if rollout.failed:
        return math.nan
    if not math.isfinite(rollout.final_reward):
        raise ValueError(
            f"final reward of session {rollout.session_id} is {rollout.final_reward}; "
            "rewards must be finite"
        )
    return rollout.final_reward


def _tokens_by_step(rollout: Rollout) -> dict[tuple[int, int], int]:
    return {(span.episode, span.step): span.length for row in rollout.rows for span in row.spans}


def _anchor(step: Step) -> str:
    """Equal for steps taken in the same state; observations agree up to case and white space."""
    return step.anchor if step.anchor is not None else " ".join(step.observation.lower().split())
