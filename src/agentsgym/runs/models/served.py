"""The weights of a model that `agentsgym serve-model` serves: its own, others, and adapters."""

from pathlib import Path
from typing import Any

from agentsgym.generation.models import is_adapted
from agentsgym.runs.models.adapters import StoredAdapter, read_adapter, with_stored
from agentsgym.runs.models.pretrained import reloaded

_ADAPTERS = 16
"""So many are served; the oldest go."""


class ModelWeights:
    """The weights that `engine` samples from, an engine of this process. The model's own are served
    as `name`."""

    def __init__(self, engine: Any, name: str) -> None:
        self._engine = engine
        self._name = name
        self._adapted: Any = None
        self._adapters: dict[str, StoredAdapter] = {}

    def adapters(self) -> list[str]:
        """The names of the adapters."""
        return list(self._adapters)

    def add(self, name: str, folder: Path) -> None:
        """Serve the adapter in a directory, which is read when it is selected. Raises
        ConfigError."""
        self._adapters[name] = read_adapter(folder, self._name)
        while len(self._adapters) > _ADAPTERS:
            del self._adapters[next(iter(self._adapters))]

    def select(self, name: str) -> None:
        """Sample from the adapter `name`, or from the model itself. Raises KeyError, ConfigError,
        and FileNotFoundError if its files are gone."""
        stored = None if name == self._name else self._adapters[name]
        self._unload()
        if stored is not None:
            self._adapted = with_stored(self._engine.model, stored, trainable=False)

    def reload(self, folder: Path) -> None:
        """Sample from all weights in a directory. Raises ConfigError for those of another
        model."""
        model = self._engine.model
        self._unload()
        new = reloaded(folder, model, self._engine.tokenizer)
        ours = model.state_dict()
        for key, weight in new.state_dict().items():
            ours[key].copy_(weight)

    def forget(self) -> None:
        """Drop what the engine has read."""
        self._engine.reset()

    def _unload(self) -> None:
        """Take the adapter's layers out of the model."""
        if self._adapted is not None:
            self._adapted.unload()
            self._adapted = None
        self._engine.reset()


def plain(model: Any) -> Any:
    """A model as it is, or with its adapter merged."""
    return model.merge_and_unload() if is_adapted(model) else model
