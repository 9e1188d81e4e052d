"""A model's weights on disk, for servers that read the same directory.

A PEFT model is written as its adapter only, which takes milliseconds; any other model as a whole
checkpoint. The newest ones are kept: of checkpoints two, of adapters more, because vLLM reads one
again that it has dropped, and an open request may use it. The weights of a model that is sharded
over processes are gathered one after the other, into the memory of the process that writes.

vLLM 0.31 on a CPU multiplies with packed copies of the weights and packs a layer again only if the
checkpoint has the layer's name. An output layer that is tied to the embedding has none, so it would
keep its old weights (its log says "ParallelLMHead: Failed to load weights"): every checkpoint has a
copy of it.
"""

import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.generation.models import is_adapted, without_adapter
from agentsgym.generation.settings import MODEL_FOLDER, ModelToServe
from agentsgym.generation.vllm.weights import Weights, WeightSyncError

_KEPT = {"checkpoint": 2, "adapter": 4}  # versions that are kept on disk
# Matrices that vLLM keeps in float32: routers, and the state matrices of Mamba.
_FLOAT32 = re.compile(r"\b(gate|router)\.|\bA_log$|correction_bias$")
_OUTER = re.compile("embed|head")  # matrices that some training leaves as they are
_ASK = "whole models and from those of FSDP2: set fsdp_version: 2, or train with ZeRO-2"
_WRAPPER = re.compile(r"\b(_orig_mod|_checkpoint_wrapped_module)\.")


class WeightFiles:
    """Writes versions of the weights, each under a unique name; `dtype` as `save` takes it."""

    def __init__(self, dtype: Any = None) -> None:
        self._dtype = dtype
        self._process = secrets.token_hex(4)
        self._written: list[Path] = []
        self._count = 0

    def write(
        self,
        model: Any,
        version: int,
        directory: Path,
        base_model: str,
        *,
        writes: bool = True,
    ) -> Weights | None:
        """Write `model` below `directory` and return how servers load it; None where this process
        does not write (`writes`). All processes must call it for a sharded model.

        `base_model` is the name under which they serve a whole checkpoint. Raises WeightSyncError
        for a model of ZeRO-3 or FSDP1, OSError if the directory cannot be written.
        """
        sharded = is_sharded(model)
        if not (writes or sharded):
            return None
        self._count += 1
        path = directory.resolve() / f"{self._process}-{self._count}-v{version}"
        self._written += [path] * writes
        try:
            save(model, path, dtype=self._dtype, writes=writes, sharded=sharded)
        except BaseException:  # a full disk needs the room
            shutil.rmtree(path, ignore_errors=True)
            raise
        if not writes:
            return None
        if is_adapted(model):
            return Weights(version, "adapter", f"agentsgym-{path.name}", str(path))
        return Weights(version, "checkpoint", base_model, str(path))

    def prune(self, newest: Weights) -> None:
        """Remove the versions that are too old, of the kind of the `newest`."""
        while len(self._written) > _KEPT[newest.kind]:
            shutil.rmtree(self._written.pop(0), ignore_errors=True)


def save(
    model: Any,
    path: Path,
    *,
    dtype: Any = None,
    writes: bool = True,
    sharded: bool = False,
) -> None:
    """Write the adapter of a PEFT model, otherwise the whole model, to the directory `path`.

    A weight that is tied to another is written by each of its names; with `dtype` matrices are
    written in that torch dtype if it is smaller than theirs. A sharded model is gathered by all
    processes, which only `writes` in one of them. Raises OSError.
    """
    adapter = model.active_adapter if is_adapted(model) else None
    state: dict[str, Any] = {}
    seen: set[int] = set()
    whole_adapter = adapter is not None and not sharded
    for name, tensor in () if whole_adapter else model.state_dict(keep_vars=True).items():
        is_copy = id(tensor) in seen
        seen.add(id(tensor))
        if adapter is not None and adapter not in name.split("."):
            continue
        whole = tensor.full_tensor() if _is_shard(tensor) else tensor
        if writes:
            to = tensor.dtype if adapter else _stored_dtype(name, tensor, dtype)
            state[_WRAPPER.sub("", name)] = whole.detach().to("cpu", to, copy=is_copy)
    if not writes:
        return
    if adapter is None:
        model.save_pretrained(str(path), state_dict=state, max_shard_size="2GB")
    else:
        model.save_pretrained(
            str(path),
            selected_adapters=[adapter],
            save_embedding_layers=False,
            state_dict=None if whole_adapter else state,
        )


def _stored_dtype(name: str, tensor: Any, dtype: Any) -> Any:
    """`dtype`, for a matrix of more bits that servers don't keep in float32."""
    if dtype is None or not tensor.is_floating_point() or dtype.itemsize >= tensor.itemsize:
        return tensor.dtype
    return tensor.dtype if tensor.dim() < 2 or _FLOAT32.search(name) else dtype


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


def _is_shard(tensor: Any) -> bool:
    return hasattr(tensor, "full_tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The model that vLLM servers are started with.

    Args:
        folder: its directory, with its tokenizer.
        name: the name under which it is served.
        dtype: the type in which the servers compute, by torch's name.
        context: the most tokens of a context that are needed; None: what the model has.
        longest: the most tokens of a context that the model has; None: unknown.
        lora_rank: the rank of the adapters that will be loaded; None: there will be none.
    """

    folder: str
    name: str
    dtype: str
    context: int | None = None
    longest: int | None = None
    lora_rank: int | None = None


def served_model(given: ModelToServe, directory: Path) -> ServedModel:
    """The model (the base of a PEFT model) as servers load it: the directory or the hub's files
    that it came from, or else a copy below `directory`.

    Raises WeightSyncError for a model that is sharded over processes.
    """
    model = given.model
    if is_sharded(model):
        raise WeightSyncError(
            "the model is already sharded over processes, so the servers cannot be launched with "
            "it: start them yourself (engine.urls)"
        )
    base = without_adapter(model)
    state = {_without_peft(name): tensor for name, tensor in base.state_dict().items()}
    state.pop(None, None)
    folder = _origin(base.config)
    if folder is None or (is_adapted(model) and not _has_weights(folder, state)):
        folder = (directory / MODEL_FOLDER).resolve()
        base.save_pretrained(str(folder), state_dict=state)
        given.tokenizer.save_pretrained(str(folder))
    ranks = [getattr(config, "r", 0) for config in getattr(model, "peft_config", {}).values()]
    return ServedModel(
        folder=str(folder),
        name=Path(str(base.config._name_or_path or "model")).name or "model",
        dtype=str(given.dtype or base.dtype).removeprefix("torch."),
        context=given.context,
        longest=getattr(base.config.get_text_config(), "max_position_embeddings", None),
        lora_rank=max(ranks, default=0) or None,
    )


def _origin(config: Any) -> Path | None:
    """The directory that a model was loaded from, for one of a hub that of its files here."""
    from transformers.utils import cached_file

    name = str(config._name_or_path or "")
    if not name:
        return None
    revision = getattr(config, "_commit_hash", None)
    try:
        file = cached_file(name, "config.json", revision=revision, local_files_only=True)
    except OSError:
        return None
    folder = Path(str(file)).parent
    whole = (folder / "tokenizer_config.json").is_file() and any(folder.glob("*.safetensors"))
    return folder.resolve() if whole else None


def _has_weights(folder: Path, state: Mapping[str | None, Any]) -> bool:
    """Whether the files have these weights. One matrix tells: training changes all."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - safe_open has no __iter__
                ours = state.get(name)
                if ours is not None and ours.dim() == 2 and not _OUTER.search(name):
                    return bool(stored.get_tensor(name).to(ours.dtype).equal(ours.cpu()))
    return False


def _without_peft(name: str) -> str | None:
    """A parameter's name without PEFT's wrappers; None for PEFT's own parameters."""
    if ".lora_" in name or ".modules_to_save." in name:
        return None
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")
