"""A model's weights on disk, for servers that read the same directory.

A PEFT model is written as its adapter only, which takes milliseconds; any other model as a whole
checkpoint. The newest two are kept, and those that servers may still read. Of a model that is
sharded over processes, no process holds more than one whole weight at a time, besides what it
writes.

vLLM 0.31 on a CPU multiplies with packed copies of the weights and packs a layer again only if the
checkpoint has the layer's name. An output layer that is tied to the embedding has none, so it would
keep its old weights (its log says "ParallelLMHead: Failed to load weights"): it gets a copy.
"""

import json
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from agentsgym.generation.models import is_adapted
from agentsgym.generation.settings import MODEL_FOLDER, ServedModel
from agentsgym.generation.vllm.weights import Weights, WeightSyncError

_KEPT = 2  # versions that are kept on disk
SHARD_BYTES = 2 << 30
_LAYER = re.compile(r"(.*?\.\d+)\.")
# Matrices that vLLM keeps in float32: routers, and the state matrices of Mamba.
_FLOAT32 = re.compile(r"\b(gate|router)\.|\bA_log$|correction_bias$")
_ASK = "whole models and from those of FSDP2: set fsdp_version: 2, or train with ZeRO-2"
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


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
        group = match[1] if (match := _LAYER.match(name)) else None
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


def is_sharded(model: Any) -> bool:
    """Whether the parameters of a model are spread over processes.

    Raises WeightSyncError for a model that FSDP1 or DeepSpeed ZeRO-3 shards.
    """
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise WeightSyncError("FSDP1 shards the model; weights go to vLLM servers from " + _ASK)
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        raise WeightSyncError(
            "DeepSpeed ZeRO-3 shards the model; weights go to vLLM servers from " + _ASK
        )
    return any(_is_shard(parameter) for parameter in model.parameters())


def whole_weights(
    model: Any, *, tied: bool = False, wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, Any]]:
    """The names and tensors of a model's state, those that are `wanted`.

    A weight that is tied to an earlier one is only there with `tied`. A tensor is valid until the
    next one is taken. Of a sharded model every process must take all.
    """
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        plain = _unwrapped(name)
        if not wanted(plain) or (id(tensor) in seen and not tied):
            continue
        seen.add(id(tensor))
        whole = tensor.full_tensor() if _is_shard(tensor) else tensor
        yield plain, whole.detach()


def _unwrapped(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _is_shard(tensor: Any) -> bool:
    return hasattr(tensor, "full_tensor")


def served_model(
    model: Any, tokenizer: Any, directory: Path, *, dtype: Any = None, context: int | None
) -> ServedModel:
    """The model (the base of a PEFT model) as servers load it: the directory or the hub's files
    that it came from, or else a copy below `directory`.

    `dtype` is the torch dtype in which the servers compute (None: the model's), `context` the most
    tokens of a context that is needed. Raises WeightSyncError for a model that is sharded over
    processes.
    """
    if is_sharded(model):
        raise WeightSyncError(
            "the model is already sharded over processes, so the servers cannot be launched with "
            "it: start them yourself (engine.urls)"
        )
    base = model.get_base_model() if is_adapted(model) else model
    folder = _origin(base.config)
    if folder is None or (is_adapted(model) and not _has_weights_of(base, folder)):
        folder = _write(base, tokenizer, directory / MODEL_FOLDER)
    text = base.config.get_text_config()
    return ServedModel(
        folder=str(folder),
        name=Path(str(base.config._name_or_path or "model")).name or "model",
        dtype=str(dtype or base.dtype).removeprefix("torch."),
        context=context,
        longest=getattr(text, "max_position_embeddings", None),
        lora_rank=_rank(model),
    )


def _origin(config: Any) -> Path | None:
    """The directory that a model was loaded from, for one of a hub that of its files here."""
    from transformers.utils import cached_file

    name = str(config._name_or_path or "")
    if not name:
        return None
    folder = Path(name)
    if not folder.is_dir():
        try:
            file = cached_file(
                name, "config.json", revision=config._commit_hash, local_files_only=True
            )
        except OSError:
            return None
        folder = Path(str(file)).parent
    names = ("config.json", "tokenizer_config.json")
    whole = all((folder / name).is_file() for name in names) and any(folder.glob("*.safetensors"))
    return folder.resolve() if whole else None


def _has_weights_of(base: Any, folder: Path) -> bool:
    """Whether the files have the base's weights. One matrix tells: training changes all."""
    from safetensors import safe_open

    index = folder / "model.safetensors.index.json"
    for name, tensor in base.state_dict().items():
        plain = _without_peft(name)
        if plain is None or tensor.dim() != 2 or "embed" in name or "head" in name:
            continue
        shards = json.loads(index.read_text())["weight_map"] if index.is_file() else {}
        file = folder / shards.get(plain, "model.safetensors")
        if not file.is_file():
            return False
        with safe_open(file, "pt") as stored:
            if plain not in stored.keys():  # noqa: SIM118 - safe_open has no __contains__
                return False
            there = stored.get_tensor(plain).to(tensor.dtype)
            same: bool = there.shape == tensor.shape and there.equal(tensor.cpu())
            return same
    return False


def _without_peft(name: str) -> str | None:
    """A parameter's name without PEFT's wrappers; None for PEFT's own parameters."""
    if ".lora_" in name or ".modules_to_save." in name:
        return None
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")


def _write(base: Any, tokenizer: Any, folder: Path) -> Path:
    state = {
        _without_peft(name): tensor
        for name, tensor in base.state_dict().items()
        if _without_peft(name)
    }
    folder.mkdir(parents=True, exist_ok=True)
    base.save_pretrained(str(folder), state_dict=state)
    tokenizer.save_pretrained(str(folder))
    return folder.resolve()


def _rank(model: Any) -> int | None:
    """The largest rank of a PEFT model's adapters."""
    if not is_adapted(model):
        return None
    ranks = [getattr(config, "r", 0) for config in model.peft_config.values()]
    return max(ranks, default=0) or None
