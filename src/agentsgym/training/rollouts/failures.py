"""Failed rollouts, over all ranks."""

import logging
from collections.abc import Sequence
from typing import NoReturn

from agentsgym.rollout import EveryRolloutFailed
from agentsgym.rollout.failures import FailureLog, samples
from agentsgym.training.distributed import Ranks
from agentsgym.types import Rollout

logger = logging.getLogger(__name__)


class FailureReport:
    """Warns about new errors, and ends training if every rollout failed. All ranks must call its
    methods."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._log = FailureLog(logger)
        self._first = ""

    def tell(self, rollouts: Sequence[Rollout], phase: str, step: int) -> bool:
        """Warn about new errors; return whether every rollout of all ranks failed."""
        errors = self._ranks.gather(samples(rollouts))
        if errors:
            self._first = errors[0]
        if self._ranks.index == 0:
            self._log.note(errors, phase, step)
        return all(self._ranks.gather([rollout.failed for rollout in rollouts]))

    def stop(self, rollouts: Sequence[Rollout], step: int) -> NoReturn:
        """Raise EveryRolloutFailed with the first error."""
        number = len(rollouts) * self._ranks.number
        raise EveryRolloutFailed(
            f"training stops after step {step}: all {number} rollouts of the next generation "
            "failed",
            self._first,
        )
