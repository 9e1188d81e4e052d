"""A checkpoint written piece by piece: safetensors files of bounded size and their index."""

import json
import re
from pathlib import Path
from typing import Any

SHARD_BYTES = 2 << 30
_LAYER = re.compile(r"(.*?\.\d+)\.")
# Matrices that vLLM keeps in float32: routers, and the state matrices of Mamba.
_FLOAT32 = re.compile(r"\b(gate|router)\.|\bA_log$|correction_bias$")


class ShardFiles:
    """Writes the weights of `model` below `folder`, in the names and shapes of its checkpoints.

    The weights come in the order of the model's state. No more than a file and a layer are held in
    memory. `dtype` is the torch dtype of the servers (None: as they are); it is that of the files
    where it is smaller, except for what servers may keep in float32: vectors and `_FLOAT32`.
    """

    def __init__(
        self, model: Any, folder: Path, *, dtype: Any = None, shard_bytes: int | None = None
    ) -> None:
        self._model = model
        self._folder = folder
        self._dtype = dtype
        self._shard_bytes = shard_bytes or SHARD_BYTES
        self._group: str | None = None
        self._layer: dict[str, Any] = {}
        self._shard: dict[str, Any] = {}
        self._files: dict[str, str] = {}
        self._count = 0

    def add(self, name: str, tensor: Any) -> None:
        """Take a copy of a weight. Raises OSError if a file cannot be written."""
        group = found[1] if (found := _LAYER.match(name)) else None
        if group != self._group or group is None:
            self._end_layer()
        self._group = group
        self._layer[name] = tensor.to(
            device="cpu", dtype=self._dtype_of(name, tensor), copy=True
        ).contiguous()

    def finish(self) -> None:
        """Write what is left, the index and the model's configuration. Raises OSError."""
        self._end_layer()
        self._end_shard()
        if self._count == 1:
            (self._folder / _file(1)).rename(self._folder / "model.safetensors")
        else:
            index = json.dumps({"metadata": {}, "weight_map": self._files}, indent=1)
            (self._folder / "model.safetensors.index.json").write_text(index)
        self._model.config.save_pretrained(str(self._folder))

    def _end_layer(self) -> None:
        """Give a layer's weights the names and shapes of a checkpoint."""
        from transformers.core_model_loading import revert_weight_conversion

        if self._layer:
            self._shard |= revert_weight_conversion(self._model, self._layer)
        self._layer = {}
        if sum(tensor.nbytes for tensor in self._shard.values()) >= self._shard_bytes:
            self._end_shard()

    def _end_shard(self) -> None:
        from safetensors.torch import save_file

        if not self._shard:
            return
        self._count += 1
        self._folder.mkdir(parents=True, exist_ok=True)
        whole = {name: tensor.contiguous() for name, tensor in self._shard.items()}
        save_file(whole, self._folder / _file(self._count), metadata={"format": "pt"})
        self._files |= dict.fromkeys(self._shard, _file(self._count))
        self._shard = {}

    def _dtype_of(self, name: str, tensor: Any) -> Any:
        dtype = self._dtype
        if dtype is None or not tensor.is_floating_point() or dtype.itemsize >= tensor.itemsize:
            return tensor.dtype
        return tensor.dtype if tensor.dim() < 2 or _FLOAT32.search(name) else dtype


def _file(number: int) -> str:
    return f"model-{number:05d}.safetensors"
