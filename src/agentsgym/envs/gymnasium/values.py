"""Best play in a known model: value iteration over the remaining steps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agentsgym.types.records import Floats

Transition = tuple[float, int, float, bool]
Model = Mapping[int, Mapping[int, Sequence[Transition]]]
"""Gymnasium's `P`: state to action to (probability, next state, reward, terminated)."""


class BestPlay:
    """The best expected sum of rewards, and the actions that achieve it.

    Rewards are not discounted; an episode ends at a terminal state or when no step remains.

    Args:
        model: Gymnasium's `P`, with states 0..S-1 and actions 0..A-1.
        horizon: steps in an episode, H.
    """

    def __init__(self, model: Model, horizon: int) -> None:
        self.horizon = horizon
        ends, rewards, weights = _arrays(model)
        expected = (weights * rewards).sum(axis=2)
        self.values: Floats = np.zeros((horizon + 1, len(model)))
        """Value of state s with k steps left, shape [H + 1, S]."""
        self.actions = np.zeros((horizon + 1, len(model)), dtype=np.int64)
        """The best action there (among equals the one that ends sooner), shape [H + 1, S]; row 0
        has no meaning."""
        steps = np.zeros(len(model))
        for left in range(1, horizon + 1):
            continued = np.append(self.values[left - 1], 0.0)[ends]
            worth = expected + (weights * continued).sum(axis=2)
            duration = 1.0 + (weights * np.append(steps, 0.0)[ends]).sum(axis=2)
            best = worth.max(axis=1)
            among_best = np.where(worth >= best[:, None] - 1e-12, duration, np.inf)
            self.values[left] = best
            self.actions[left] = among_best.argmin(axis=1)
            steps = among_best.min(axis=1)

    def value(self, state: int, left: int | None = None) -> float:
        """Expected sum of rewards from `state` with `left` steps remaining (default: all)."""
        return float(self.values[self.horizon if left is None else left, state])

    def action(self, state: int, left: int) -> int:
        """A best action in `state` with `left` steps remaining, at least 1."""
        return int(self.actions[left, state])


def _arrays(model: Model) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """Next states (S for an end), rewards and probabilities, each [S, A, max outcomes]."""
    states = len(model)
    actions = max(len(model[s]) for s in model)
    most = max(len(outcomes) for s in model for outcomes in model[s].values())
    ends = np.full((states, actions, most), states, dtype=np.int64)
    rewards = np.zeros((states, actions, most))
    weights = np.zeros((states, actions, most))
    for s, by_action in model.items():
        for a, outcomes in by_action.items():
            for k, (probability, after, reward, terminated) in enumerate(_listed(outcomes)):
                ends[s, a, k] = states if terminated else int(after)
                rewards[s, a, k] = reward
                weights[s, a, k] = probability
    return ends, rewards, weights


def _listed(outcomes: Any) -> list[Transition]:
    return [(float(p), int(after), float(r), bool(end)) for p, after, r, end in outcomes]
