"""Gives the trainer's current weights to its engine."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentsgym.training.distributed import Ranks
from agentsgym.types import TrainableEngine, WeightTransfer, WeightUpdate

Push = Callable[[WeightUpdate], None]


class WeightSync:
    """Updates an engine's weights; `directory` is a folder in which it may write them."""

    def __init__(self, engine: TrainableEngine, directory: Path, ranks: Ranks) -> None:
        self._engine = engine
        self._directory = directory
        self._ranks = ranks
        self._pushed: int | None = None
        self._metrics: dict[str, float] = {}

    def push(self, model: Any, version: int, through: Push | None = None) -> None:
        """Let the engine sample from the current weights of `model`. Every rank must call it.

        `version` is the optimizer's step, which rollouts will record. `through` passes the update
        on where requests may be open (a rollout source's `use_weights`). Raises RuntimeError if the
        engine then reports another version, and the engine's own errors.
        """
        started = time.perf_counter()
        update = WeightUpdate(
            model,
            version,
            self._directory,
            changed=version != self._pushed,
            rank=self._ranks.index,
            gather=self._ranks.gather,
        )
        (through or self._engine.update_weights)(update)
        if self._engine.policy_version != version:
            raise RuntimeError(
                f"{type(self._engine).__name__} was given the weights of version {version}, but "
                f"its policy_version is {self._engine.policy_version}"
            )
        self._pushed = version
        if update.changed:
            self._metrics = self._measured(time.perf_counter() - started)

    def take_metrics(self) -> dict[str, float]:
        """What the pushes since the last call took, by name; empty where the engine and the
        trainer share the weights, and in processes that write none."""
        taken, self._metrics = self._metrics, {}
        return taken

    def _measured(self, seconds: float) -> dict[str, float]:
        moved: WeightTransfer | None = getattr(self._engine, "weight_transfer", None)
        if moved is None:
            return {}
        return {
            "time/weights": seconds,
            "time/weights_server": moved.slowest,
            "weights/bytes": moved.bytes,
        }

    def forget(self) -> None:
        """Push the weights again: they changed although there was no optimizer step."""
        self._pushed = None
