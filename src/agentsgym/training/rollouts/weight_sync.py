"""The trained weights' way into an engine.

The embedded engine runs the trained module itself and only has to forget its caches. vLLM servers
get the weights from disk: a LoRA adapter or a whole checkpoint in a directory that they can read,
under a name or by a reload that says which version they hold. NCCL is not needed.
"""

import secrets
import shutil
from pathlib import Path
from typing import Any, Protocol

from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.generation.vllm.weights import Weights, WeightSyncError
from agentsgym.training.ranks import Ranks
from agentsgym.types import Engine

_KEPT = 2  # versions that stay on disk


class Sync(Protocol):
    """Makes an engine sample from the model as it is now."""

    def push(self, model: Any, version: int) -> None:
        """`version` (the optimiser's step) is what rollouts will record. Every rank must call."""
        ...

    def forget(self) -> None:
        """The weights have changed although no optimiser step was made: push them again."""
        ...


def sync_for(engine: Engine, directory: Path, ranks: Ranks) -> Sync:
    """What an engine needs; `directory` is where weights for servers are written."""
    if isinstance(engine, VLLMEngine):
        return DiskSync(engine, directory, ranks)
    return LocalSync(engine)


class LocalSync:
    """For engines that run the trained module, or bring their own way (`reset`)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def push(self, model: Any, version: int) -> None:
        """Tell the engine that the weights have changed since it last read anything."""
        reset = getattr(self._engine, "reset", None)
        if reset is not None:
            reset()
        if hasattr(self._engine, "policy_version"):
            self._engine.policy_version = version

    def forget(self) -> None:
        """Nothing to do: every push makes the engine read the weights again."""


class DiskSync:
    """For vLLM servers. Rank 0 writes and loads; the other ranks use what it loaded.

    A PEFT model goes as its adapter alone, which takes milliseconds; any other model as a whole
    checkpoint, where the servers offer a reload. The newest two versions stay on disk.
    """

    def __init__(self, engine: VLLMEngine, directory: Path, ranks: Ranks) -> None:
        self._engine = engine
        self._directory = directory.resolve()
        self._ranks = ranks
        self._runs: list[str] = []
        self._pushed: int | None = None

    def push(self, model: Any, version: int) -> None:
        """Save `model` and have the servers load it, unless they hold this version already.

        Raises WeightSyncError where servers cannot take it, EngineUnavailable where none answers,
        OSError where the directory cannot be written.
        """
        if version == self._pushed:
            return
        if self._pushed is None:
            self._runs.append(self._ranks.gather([secrets.token_hex(4)])[0])
        weights = self._weights(model, version)
        error = self._push(model, weights) if self._ranks.index == 0 else None
        problem = self._ranks.gather([str(error) if error else ""])[0]
        if error is not None:
            raise error
        if problem:
            raise WeightSyncError(f"rank 0: {problem}")
        if self._ranks.index != 0:
            self._engine.adopt(weights)
        self._pushed = version

    def _weights(self, model: Any, version: int) -> Weights:
        path = self._directory / f"{self._runs[-1]}-v{version}"
        if is_peft(model):
            return Weights(version, "adapter", f"agentsgym-{path.name}", str(path))
        return Weights(version, "checkpoint", self._engine.base_model, str(path))

    def _push(self, model: Any, weights: Weights) -> Exception | None:
        """What went wrong, so that no rank is left waiting for another."""
        try:
            check_whole(model)
            save(model, Path(weights.path))
            self._engine.load(weights)
            self._prune()
        except Exception as error:
            return error
        return None

    def forget(self) -> None:
        """Push anew, under another name: servers know the version by its name."""
        self._pushed = None

    def _prune(self) -> None:
        found = [path for run in self._runs for path in self._versions(run)]
        for old in found[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _versions(self, run: str) -> list[Path]:
        paths = self._directory.glob(f"{run}-v*")
        return sorted(paths, key=lambda path: int(path.name.rpartition("-v")[2]))


def is_peft(model: Any) -> bool:
    """Whether a model is wrapped by PEFT."""
    return hasattr(model, "peft_config") and hasattr(model, "active_adapter")


def save(model: Any, path: Path) -> None:
    """Write the adapter of a PEFT model, else the whole model, to the directory `path`."""
    path.mkdir(parents=True, exist_ok=True)
    if is_peft(model):
        model.save_pretrained(
            str(path), selected_adapters=[model.active_adapter], save_embedding_layers=False
        )
    else:
        model.save_pretrained(str(path))


def check_whole(model: Any) -> None:
    """Raise WeightSyncError for a model whose parameters are spread over processes."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "ds_id") or type(parameter).__name__ == "DTensor":
            raise WeightSyncError(
                f"{name} is sharded (DeepSpeed ZeRO-3 or FSDP); weights go to vLLM servers from "
                "whole models only: train without sharding, or use TRL's own use_vllm"
            )
