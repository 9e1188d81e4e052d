"""Keeps the trainer's engine at the weights that are trained."""

from pathlib import Path
from typing import Any

from agentsgym.training.distributed import Ranks
from agentsgym.types import TrainableEngine, WeightUpdate


class WeightSync:
    """Tells an engine which weights to sample from; `directory` is where it may write them."""

    def __init__(self, engine: TrainableEngine, directory: Path, ranks: Ranks) -> None:
        self._engine = engine
        self._directory = directory
        self._ranks = ranks
        self._pushed: int | None = None

    def push(self, model: Any, version: int) -> None:
        """Let the engine sample from `model` as it is now. Every rank must call.

        `version` is the optimizer's step, which rollouts will record. Raises RuntimeError where
        the engine then names another version, and what the engine itself raises.
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
        """The weights have changed although no optimizer step was made: push them again."""
        self._pushed = None
