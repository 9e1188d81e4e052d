"""Stops training if almost no group has a learning signal."""

import logging
from typing import Any

from transformers import TrainerCallback

logger = logging.getLogger(__name__)


class LowSignalCallback(TrainerCallback):  # type: ignore[misc]
    """Stops training if the share of groups with signal stays below `share` for `patience`
    generations; `reason` then says so. A collapsed policy only produces groups without signal."""

    def __init__(self, share: float, patience: int) -> None:
        self._share = share
        self._patience = patience
        self._poor = 0
        self.reason: str | None = None

    def update(self, share: float) -> None:
        """Record the share of rollouts in a new generation whose group has signal."""
        self._poor = self._poor + 1 if share < self._share else 0
        if self._poor >= self._patience and self.reason is None:
            self.reason = (
                f"fewer than {self._share:.0%} of the groups had different rewards in each of "
                f"the last {self._poor} generations, so there is nothing left to learn from"
            )
            logger.warning("training stops: %s", self.reason)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Request a stop if there is a reason."""
        if self.reason is not None:
            control.should_training_stop = True
        return control
