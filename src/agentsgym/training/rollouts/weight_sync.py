"""Gives the trainer's current weights to its engine."""

from pathlib import Path
from typing import Any

from agentsgym.training.distributed import Ranks
from agentsgym.types import TrainableEngine, WeightUpdate


class WeightSync:
    """Updates an engine's weights; `directory` is a folder in which it may write them."""

    def __init__(self, engine: TrainableEngine, directory: Path, ranks: Ranks) -> None:
        self._engine = engine
        self._directory = directory
        self._ranks = ranks
        self._pushed: int | None = None

    def push(self, model: Any, version: int) -> None:
        """Let the engine sample from the current weights of `model`. Every rank must call it.

        `version` is the optimizer's step, which rollouts will record. Raises RuntimeError if the
        engine then reports another version, and the engine's own errors.
        """
        update = WeightUpdate(
            model,
            version,
            self._directory,
            changed=version != self._pushed,
            rank=self._ranks.index,
            gather=self._ranks.gather,
        )
        self._engine.update_weights(update)
        if self._engine.policy_version != version:
            raise RuntimeError(
                f"{type(self._engine).__name__} was given the weights of version {version}, but "
                f"its policy_version is {self._engine.policy_version}"
            )
        self._pushed = version

    def forget(self) -> None:
        """Push the weights again: they changed although there was no optimizer step."""
        self._pushed = None
