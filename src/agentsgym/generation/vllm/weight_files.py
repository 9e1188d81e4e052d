"""Weights on disk, for servers that read the same directory.

A PEFT model is written as its adapter only, which takes milliseconds; any other model as a whole
checkpoint. The newest two are kept, and those that servers may still read.

vLLM 0.31 on a CPU multiplies with packed copies of the weights and packs a layer again only if the
checkpoint has the layer's name. An output layer that is tied to the embedding has none, so it would
keep its old weights (its log says "ParallelLMHead: Failed to load weights"): it gets a copy.
"""

import secrets
import shutil
from collections.abc import Collection
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
        self.bytes: int | None = None
        """The size of the last version's files; None before any was written here."""

    def write(
        self,
        model: Any,
        version: int,
        directory: Path,
        base_model: str,
        *,
        copy_tied: bool = False,
    ) -> Weights:
        """Write `model` below `directory` and return how servers load it.

        `base_model` is the name under which they serve a whole checkpoint, `copy_tied` whether that
        names tied weights too. Raises WeightSyncError for a model that is sharded over processes,
        OSError if the directory cannot be written.
        """
        check_whole(model)
        self._count += 1
        path = directory.resolve() / f"{self._process}-{self._count}-v{version}"
        self._written.append(path)
        save(model, path, copy_tied=copy_tied)
        self.bytes = sum(file.stat().st_size for file in path.iterdir())
        if is_adapted(model):
            return Weights(version, "adapter", f"agentsgym-{path.name}", str(path))
        return Weights(version, "checkpoint", base_model, str(path))

    def prune(self, used: Collection[str] = ()) -> None:
        """Remove all versions but the newest and those in the directories `used`."""
        old = [path for path in self._written[:-_KEPT] if str(path) not in used]
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
        self._written = [path for path in self._written if path not in old]


def save(model: Any, path: Path, *, copy_tied: bool = False) -> None:
    """Write the adapter of a PEFT model, otherwise the whole model, to the directory `path`; with
    `copy_tied` also a copy of each weight that is tied to another."""
    path.mkdir(parents=True, exist_ok=True)
    if is_adapted(model):
        model.save_pretrained(
            str(path), selected_adapters=[model.active_adapter], save_embedding_layers=False
        )
    else:
        model.save_pretrained(str(path), state_dict=_untied(model) if copy_tied else None)


def _untied(model: Any) -> dict[str, Any]:
    """A model's weights by all their names, each with memory of its own."""
    seen: set[int] = set()
    found: dict[str, Any] = {}
    for name, tensor in model.state_dict().items():
        found[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return found


def check_whole(model: Any) -> None:
    """Raise WeightSyncError for a model whose parameters are sharded over processes."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "ds_id") or type(parameter).__name__ == "DTensor":
            raise WeightSyncError(
                f"{name} is sharded (DeepSpeed ZeRO-3 or FSDP); weights go to vLLM servers from "
                "whole models only: train without sharding, or use TRL's own use_vllm"
            )
