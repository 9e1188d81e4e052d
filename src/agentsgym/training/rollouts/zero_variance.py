"""Stopping when almost no group teaches anything."""

import logging
from typing import Any

from transformers import TrainerCallback

logger = logging.getLogger(__name__)


class LowSignalCallback(TrainerCallback):  # type: ignore[misc]
    """Stops training when the share of groups with signal stays below `share` for `patience`
    generations; `reason` then says so. A policy that has collapsed gives such groups only."""

    def __init__(self, share: float, patience: int) -> None:
        self._share = share
        self._patience = patience
        self._poor = 0
        self.reason: str | None = None

    def update(self, share: float) -> None:
        """Note the share of rollouts whose group has signal in a new generation."""
        self._poor = self._poor + 1 if share < self._share else 0
        if self._poor >= self._patience and self.reason is None:
            self.reason = (
                f"fewer than {self._share:.0%} of the groups had different rewards in each of "
                f"the last {self._poor} generations, so there is nothing left to learn from"
            )
            logger.warning("training stops: %s", self.reason)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Ask the trainer to stop once there is a reason."""
        if self.reason is not None:
            control.should_training_stop = True
        return control
