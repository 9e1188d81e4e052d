"""Weights on disk, for servers that read the same directory.

A PEFT model is written as its adapter only, which takes milliseconds; any other model as a whole
checkpoint. The newest two are kept.
"""

import secrets
import shutil
from pathlib import Path
from typing import Any

from agentsgym.generation.adapted import is_adapted
from agentsgym.generation.vllm.weights import Weights, WeightSyncError

_KEPT = 2  # versions that are kept on disk


class WeightFiles:
    """Writes versions of the weights, each under a unique name."""

    def __init__(self) -> None:
        self._process = secrets.token_hex(4)
        self._written: list[Path] = []
        self._count = 0

    def write(self, model: Any, version: int, directory: Path, base_model: str) -> Weights:
        """Write `model` below `directory` and return how servers load it.

        `base_model` is the name under which they serve a whole checkpoint. Raises WeightSyncError
        for a model that is sharded over processes, OSError if the directory cannot be written.
        """
        check_whole(model)
        self._count += 1
        path = directory.resolve() / f"{self._process}-{self._count}-v{version}"
        self._written.append(path)
        save(model, path)
        if is_adapted(model):
            return Weights(version, "adapter", f"agentsgym-{path.name}", str(path))
        return Weights(version, "checkpoint", base_model, str(path))

    def prune(self) -> None:
        """Remove all versions but the newest."""
        for old in self._written[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        del self._written[:-_KEPT]


def save(model: Any, path: Path) -> None:
    """Write the adapter of a PEFT model, otherwise the whole model, to the directory `path`."""
    path.mkdir(parents=True, exist_ok=True)
    if is_adapted(model):
        model.save_pretrained(
            str(path), selected_adapters=[model.active_adapter], save_embedding_layers=False
        )
    else:
        model.save_pretrained(str(path))


def check_whole(model: Any) -> None:
    """Raise WeightSyncError for a model whose parameters are sharded over processes."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "ds_id") or type(parameter).__name__ == "DTensor":
            raise WeightSyncError(
                f"{name} is sharded (DeepSpeed ZeRO-3 or FSDP); weights go to vLLM servers from "
                "whole models only: train without sharding, or use TRL's own use_vllm"
            )
