"""Advantages per token from an action mask and one reward per action, by our estimators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from agentsgym.credit import StepTable, check_estimator, credit_steps, find_estimator
from agentsgym.types.records import Floats

# Both need what a mask and rewards do not tell: the state before a step, other possible actions.
_UNKNOWN = {"gigpo": "the states before the steps", "trial_cv": "other possible actions"}


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of a rollout: [start, stop) of each among its completion's tokens, and the reward
    of each. A rollout without actions takes no part."""

    spans: tuple[tuple[int, int], ...]
    rewards: tuple[float, ...]

    @classmethod
    def of(cls, mask: Sequence[int], rewards: Sequence[float], name: str) -> "Actions":
        """An action is a run of 1s in the mask, so no two actions may touch.

        Raises ValueError, with the rollout's `name`, if there is not one reward for each action.
        """
        spans, start = [], 0
        for value, tokens in groupby(mask):
            stop = start + len(list(tokens))
            spans += [(start, stop)] if value else []
            start = stop
        if spans and len(spans) != len(rewards):
            raise ValueError(
                f"{name}: action_mask marks {len(spans)} actions, step_rewards has {len(rewards)} "
                "numbers; give one for each run of 1s"
            )
        return cls(tuple(spans), tuple(map(float, rewards)) if spans else ())

    def placed(self, values: Sequence[float], length: int) -> Floats:
        """Each action's number on its tokens, 0 elsewhere, shape (length,)."""
        credit = np.zeros(length)
        for (start, stop), value in zip(self.spans, values, strict=True):
            credit[start:stop] = value
        return credit


def check_step_estimator(name: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError for an estimator that needs more than action masks and step rewards."""
    check_estimator(name, options)
    if find_estimator(name).per == "token":
        raise ValueError(f"estimator {name!r} gives numbers to tokens; step rewards are of actions")
    if name in _UNKNOWN:
        raise ValueError(
            f"estimator {name!r} needs {_UNKNOWN[name]}, which no action mask tells; use it with "
            "agentsgym.trainer: agentsgym"
        )


def action_advantages(
    rollouts: Sequence[Actions],
    group_size: int,
    estimator: str,
    options: Mapping[str, Any],
) -> list[list[float]]:
    """One advantage per action; `group_size` rollouts of a task stand side by side. A rollout is
    one episode, whose reward is the sum of its steps'."""
    owner = [number for number, one in enumerate(rollouts) for _ in one.rewards]
    steps = [step for one in rollouts for step in range(len(one.rewards))]
    tokens = [stop - start for one in rollouts for start, stop in one.spans]
    number = len(steps)
    table = StepTable(
        group=np.arange(len(rollouts), dtype=np.int64) // group_size,
        live=np.array([bool(one.spans) for one in rollouts], dtype=np.bool_),
        final_reward=np.array([sum(one.rewards) if one.spans else np.nan for one in rollouts]),
        env=np.full(len(rollouts), "", dtype=np.object_),
        rollout=np.array(owner, dtype=np.int64),
        episode=np.zeros(number, dtype=np.int64),
        step=np.array(steps, dtype=np.int64),
        reward=np.array([r for one in rollouts for r in one.rewards], dtype=np.float64),
        score_weight=np.ones(number),
        tokens=np.array(tokens, dtype=np.int64),
        reflection=np.zeros(number, dtype=np.bool_),
        anchor=np.full(number, "", dtype=np.object_),
    )
    advantages = credit_steps(table, estimator, **options)
    values = iter(advantages.value.tolist())
    return [[next(values) for _ in one.rewards] for one in rollouts]
