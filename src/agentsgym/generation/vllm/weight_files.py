"""Weights on disk, for servers that read the same directory.

A PEFT model is written as its adapter only, which takes milliseconds; any other model as a whole
checkpoint. The newest two are kept, and those that servers may still read.

vLLM 0.31 on a CPU multiplies with packed copies of the weights and packs a layer again only if the
checkpoint has the layer's name. An output layer that is tied to the embedding has none, so it would
keep its old weights (its log says "ParallelLMHead: Failed to load weights"): it gets a copy.
"""

import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from agentsgym.generation.adapted import is_adapted
from agentsgym.generation.vllm.shard_files import ShardFiles
from agentsgym.generation.vllm.weights import Weights
from agentsgym.generation.vllm.whole_weights import is_sharded, whole_weights

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
        dtype: Any = None,
        writes: bool = True,
    ) -> Weights | None:
        """Write `model` below `directory` and return how servers load it; None where this process
        does not write (`writes`). All processes must call it for a sharded model.

        `base_model` is the name under which they serve a whole checkpoint, `copy_tied` whether that
        names tied weights too, `dtype` the torch dtype in which they keep it (None: unknown).
        Raises WeightSyncError for a model of ZeRO-3 or FSDP1, OSError if the directory cannot be
        written.
        """
        sharded = is_sharded(model)
        if not (writes or sharded):
            return None
        self._count += 1
        path = directory.resolve() / f"{self._process}-{self._count}-v{version}"
        self._written += [path] * writes
        try:
            save(model, path, copy_tied=copy_tied, dtype=dtype, writes=writes, sharded=sharded)
        except BaseException:  # a full disk needs the room
            shutil.rmtree(path, ignore_errors=True)
            raise
        if not writes:
            return None
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


def save(
    model: Any,
    path: Path,
    *,
    copy_tied: bool = False,
    dtype: Any = None,
    writes: bool = True,
    sharded: bool = False,
) -> None:
    """Write the adapter of a PEFT model, otherwise the whole model, to the directory `path`.

    With `copy_tied` also a copy of each weight that is tied to another; with `dtype` matrices in
    that torch dtype if it is smaller than theirs. A sharded model is gathered by all processes,
    which only `writes` in one of them. Raises OSError.
    """
    if is_adapted(model):
        _save_adapter(model, path, writes=writes, sharded=sharded)
        return
    files = ShardFiles(model, path, dtype=dtype) if writes else None
    _take_all(whole_weights(model, tied=copy_tied), files.add if files else _drop)
    if files is not None:
        files.finish()


def _save_adapter(model: Any, path: Path, *, writes: bool, sharded: bool) -> None:
    state: dict[str, Any] = {}

    def keep(name: str, tensor: Any) -> None:
        state[name] = tensor.to("cpu", copy=True)

    if sharded:
        weights = whole_weights(model, wanted=lambda name: model.active_adapter in name.split("."))
        _take_all(weights, keep if writes else _drop)
    if writes:
        path.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(
            str(path),
            selected_adapters=[model.active_adapter],
            save_embedding_layers=False,
            state_dict=state if sharded else None,
        )


def _take_all(weights: Iterator[tuple[str, Any]], take: Callable[[str, Any], None]) -> None:
    """Give all weights to `take`. After an error of it the rest is dropped, because other processes
    wait for each of them to be gathered, and then the error is raised."""
    failed: Exception | None = None
    for name, tensor in weights:
        try:
            (_drop if failed else take)(name, tensor)
        except Exception as error:
            failed = error
    if failed is not None:
        raise failed


def _drop(name: str, tensor: Any) -> None:
    """Only the gathering counts."""
