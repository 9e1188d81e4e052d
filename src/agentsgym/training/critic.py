"""The critic: a linear value head on the policy's last hidden states, for "gae"."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from agentsgym.training.loss.batch import TrainRow, bare_row
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.types import Rollout
from agentsgym.types.rows import Floats

StepKey = tuple[int, int]

# How far one generation moves the head: the weight of its squared change, where the squared length
# of an input is 2.
_DAMPING = 0.01


class Critic:
    """Values of steps before their first token: x · w, with x = (h / |h|, 1) and h the policy's
    last hidden state at the token before, float64.

    Its loss is the mean of (x · w − return)² over the steps of a generation plus 0.01 times the
    squared change of w, of which `learn` takes the exact minimum: there is no learning rate. The
    policy's weights get no gradient of it. `kept()` holds w under "weights" as floats; without
    it every value is 0. All ranks must call the methods.
    """

    def __init__(
        self, scorer: Scorer, accelerator: Any, kept: Callable[[], dict[str, Any]]
    ) -> None:
        self._scorer = scorer
        self._accelerator = accelerator
        self._kept = kept
        self._size = 0
        self._inputs: dict[tuple[int, int], dict[StepKey, Floats]] = {}

    @property
    def weights(self) -> list[float]:
        """w, of which the last number is the constant; empty before the first fit."""
        weights: list[float] = self._kept().get("weights", [])
        return weights

    def values_of(
        self, rollouts: Sequence[Rollout], model: nn.Module
    ) -> list[dict[StepKey, float]]:
        """The values of each rollout's steps, which are kept for `learn`; none of failed ones."""
        keys = {rollout.session_id: (rollout.group, rollout.index) for rollout in rollouts}
        self._inputs = {key: {} for key in keys.values()}
        rows = []
        for rollout in rollouts:
            for row in [] if rollout.failed else rollout.rows:
                spans = tuple(span for span in row.spans if 0 < span.start < span.stop)
                rows.append(bare_row(row.token_ids, spans, rollout.session_id))
        for read, hidden in self._scorer.read(rows, _before_steps, model, head=False):
            hidden = nn.functional.normalize(hidden.double().cpu())
            self._size = hidden.shape[1] + 1
            x = torch.cat([hidden, torch.ones(len(hidden), 1)], dim=1).numpy()
            for span, own in zip(read.spans, x, strict=True):
                self._inputs[keys[read.session_id]][span.key] = own
        if not self.weights:
            return [{} for _ in rollouts]
        w = np.array(self.weights)
        return [{key: float(x @ w) for key, x in steps.items()} for steps in self._inputs.values()]

    def learn(self, returns: Mapping[tuple[int, int], Mapping[StepKey, float]]) -> dict[str, float]:
        """Fit the steps that `values_of` read last to their returns, by (group, index) and step.
        Returns the metric "critic/explained_variance" of the values before, if there is one."""
        pairs = [
            (x, returns[rollout][key])
            for rollout, steps in self._inputs.items()
            for key, x in steps.items()
        ]
        self._inputs = {}
        w, sums = self._sums(pairs)
        size = self._size
        number, of_y, of_squares, of_errors, of_squared = sums[-5:]
        matrix = sums[: size * size].reshape(size, size) + number * _DAMPING * np.eye(size)
        gradient = sums[size * size : size * size + size]
        self._kept()["weights"] = (w + np.linalg.solve(matrix, gradient)).tolist()
        spread = of_squares - of_y**2 / max(number, 1.0)
        if spread <= 0.0:
            return {}
        left = of_squared - of_errors**2 / number
        return {"critic/explained_variance": float(1.0 - left / spread)}

    def _sums(self, pairs: Sequence[tuple[Floats, float]]) -> tuple[Floats, Floats]:
        """w, and sums over the steps of all ranks, with the errors e = y − x·w: x xᵀ, x e, 1, y,
        y², e, e²."""
        x = np.array([x for x, _ in pairs]).reshape(-1, self._size)
        y = np.array([y for _, y in pairs])
        w = np.array(self.weights or [0.0] * self._size)
        e = y - x @ w
        own = [(x.T @ x).ravel(), x.T @ e, [len(y), y.sum(), y @ y, e.sum(), e @ e]]
        here = torch.from_numpy(np.concatenate(own)).to(self._accelerator.device)
        total: Floats = self._accelerator.reduce(here, "sum").cpu().numpy()
        return w, total


def _before_steps(row: TrainRow) -> list[int]:
    return [span.start - 1 for span in row.spans]
