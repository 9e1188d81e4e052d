"""The directory from which vLLM servers load a model that this process holds.

Servers get the weights of every later version from the trainer, so what they start with only has to
be the same architecture; under an adapter it has to be the very base.
"""

import json
from pathlib import Path
from typing import Any

from agentsgym.generation.adapted import is_adapted
from agentsgym.generation.settings import MODEL_FOLDER, ServedModel
from agentsgym.generation.vllm.weights import WeightSyncError
from agentsgym.generation.vllm.whole_weights import is_sharded


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
        plain = _plain(name)
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


def _plain(name: str) -> str | None:
    """A parameter's name without PEFT's wrappers; None for PEFT's own parameters."""
    if ".lora_" in name or ".modules_to_save." in name:
        return None
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")


def _write(base: Any, tokenizer: Any, folder: Path) -> Path:
    state = {_plain(name): tensor for name, tensor in base.state_dict().items() if _plain(name)}
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
