"""Why training stops early: every rollout failed, or nothing is left to learn."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from transformers import TrainerCallback

from agentsgym.rollout import EveryRolloutFailed
from agentsgym.rollout.failures import MOST_ERRORS, last_line, samples
from agentsgym.training.ranks import Ranks
from agentsgym.types import Rollout

logger = logging.getLogger(__name__)


class GradientNotFinite(ArithmeticError):
    """Training ends, because clipping to a norm that is not finite makes all gradients 0 or NaN."""

    def __init__(self, norm: float, step: int) -> None:
        super().__init__(
            f"the gradient's norm is {norm} in step {step}, so nothing more can be learned; look "
            "at the size of the rewards (the advantages are as large unless the estimator scales "
            "them), at train.learning_rate, and at the weights of the model"
        )


class FailureReport:
    """Warns once about each distinct error, and ends training if every rollout failed; errors with
    equal last lines are equal. All ranks must call its methods."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._logged: set[str] = set()
        self._first = ""

    def report(self, rollouts: Sequence[Rollout], phase: str, step: int) -> bool:
        """Warn about new errors; return whether every rollout of all ranks failed."""
        errors = self._ranks.gather(samples(rollouts))
        if errors:
            self._first = errors[0]
        if self._ranks.rank == 0:
            for error in errors:
                self._warn(error, f"{phase}, step {step}")
        return all(self._ranks.gather([rollout.failed for rollout in rollouts]))

    def _warn(self, error: str, where: str) -> None:
        line = last_line(error)
        if line in self._logged or len(self._logged) == MOST_ERRORS:
            return
        self._logged.add(line)
        more = "" if len(self._logged) < MOST_ERRORS else "\nFurther errors are not logged."
        logger.warning("rollouts fail (%s); the first with this error:\n%s%s", where, error, more)

    def stop(self, rollouts: Sequence[Rollout], step: int) -> NoReturn:
        """Raise EveryRolloutFailed with the first error."""
        number = len(rollouts) * self._ranks.world_size
        raise EveryRolloutFailed(
            f"training stops after step {step}: all {number} rollouts of the next generation "
            "failed",
            self._first,
        )


class LowSignalCallback(TrainerCallback):  # type: ignore[misc]
    """Stops training if the share of groups with signal stays below `share` for `patience`
    generations; `reason` then says so. A collapsed policy only produces groups without signal.
    Their number is in the dict that `kept` gives, which checkpoints hold."""

    def __init__(self, share: float, patience: int, kept: Callable[[], dict[str, Any]]) -> None:
        self._share = share
        self._patience = patience
        self._kept = kept
        self.reason: str | None = None

    def update(self, share: float) -> None:
        """Record the share of rollouts in a new generation whose group has signal."""
        poor = self._kept().get("poor", 0) + 1 if share < self._share else 0
        self._kept()["poor"] = poor
        if poor >= self._patience and self.reason is None:
            self.reason = (
                f"fewer than {self._share:.0%} of the groups had different rewards in each of "
                f"the last {poor} generations, so there is nothing left to learn from"
            )
            logger.warning("training stops: %s", self.reason)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Request a stop if there is a reason."""
        if self.reason is not None:
            control.should_training_stop = True
        return control
