"""What a training step logs and hands over: figures, means over its tokens, a warning.

Figures about rollouts are defined in `agentsgym.evaluation.metrics`.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from agentsgym.evaluation.metrics import record, summarize
from agentsgym.training.advantages import GenerationAdvantages
from agentsgym.training.collect import RolloutCollector
from agentsgym.training.ranks import Ranks
from agentsgym.types import Rollout
from agentsgym.types.rows import Floats
from agentsgym.types.text import docs_page

logger = logging.getLogger(__name__)

RolloutSink = Callable[[Sequence[Rollout], Mapping[str, Any]], None]
"""Receives this rank's rollouts of each generation and evaluation, with `{"phase": "train" |
"eval", "step": global step, "rank": of this process, "advantages": per row of the rollouts, or
None}`, and `"dataset"`, the name of the evaluation set, if there are several."""


@dataclass(slots=True)
class Reports:
    """Figures, logs and the sink of a trainer, which `record`s a figure, and whose `sink()` gets
    rollouts if there is one."""

    ranks: Ranks
    collector: RolloutCollector
    record: Callable[[str, float], None]
    sink: Callable[[], RolloutSink | None]
    warned: bool = False

    def figures(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Figures of all ranks' rollouts, also per environment if rows name several."""
        records = self.ranks.gather([record(rollout) for rollout in rollouts])
        return summarize(records, per_environment=len(self.collector.envs.names) > 1)

    def hand_over(
        self,
        rollouts: Sequence[Rollout],
        phase: str,
        step: int,
        advantages: Sequence[Floats] | None = None,
        dataset: str = "",
    ) -> None:
        """Pass rollouts to the sink if there is one."""
        if (sink := self.sink()) is not None:
            info: dict[str, Any] = {"phase": phase, "step": step, "rank": self.ranks.rank}
            info |= {"advantages": advantages} | ({"dataset": dataset} if dataset else {})
            self.ranks.together(lambda: sink(rollouts, info))

    def generation(
        self,
        rollouts: Sequence[Rollout],
        step: int,
        advantages: GenerationAdvantages,
        others: dict[str, float],
    ) -> None:
        """Log the generation of a step, with `others` of its figures, and pass it to the sink."""
        values = self.figures(rollouts) | {
            "groups_without_signal": 1.0 - advantages.share_with_signal,
            "occupancy": self.collector.engine.stats.occupancy,
        }
        if values.get("malformed") == 1.0 and self.ranks.rank == 0 and not self.warned:
            self.warned = True
            logger.warning(
                "all actions of the generation of step %s are malformed, so there is nothing to "
                "learn from: look at what is said, and tell the agent the form of an action, or "
                "let the model first imitate games, or more of them (%s)",
                step,
                docs_page("Warm start"),
            )
        for name, value in (values | self.collector.source_figures | others).items():
            if not math.isnan(value):
                self.record(name, value)
        self.hand_over(rollouts, "train", step, advantages.of_rows)


# A warning is logged if the cap on the sampler's ratio is reached in more than this share of rows.
_MANY_CAPPED = 0.1
_DROPOUT_HINT = "; the model's dropout makes them differ: set disable_dropout=True"


def mean_of_sums(parts: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """Means over the tokens of all chunks and ranks together, independent of their division.

    Each part maps a name to (sum, count). A ratio's `_mean` and `_square` become its effective
    sample size `_ess` = (Σρ)² / (n·Σρ²): 1 on-policy, near 0 if few tokens have almost all weight.
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


def warn_of_capped_rows(shares: Sequence[float], cap: float, model: nn.Module) -> None:
    """Warn if the cap on the sampler's ratio is reached in many rows; `shares` has the share of
    such rows in each step since the last log."""
    share = sum(shares) / len(shares) if shares else 0.0
    if share > _MANY_CAPPED:
        dropout = any(isinstance(part, nn.Dropout) and part.p > 0 for part in model.modules())
        logger.warning(
            "the engine's probabilities differ from the trainer's: sampler_cap=%s bites in "
            "%.0f %% of the rows%s",
            cap,
            100 * share,
            _DROPOUT_HINT if dropout else "",
        )
