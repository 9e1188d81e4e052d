"""Directories of weights, which may be a stranger's: what is damaged in a model, an adapter or a
checkpoint, and the adapters of PEFT.

Of a stored adapter's configuration only some keys are read. PEFT knows others that import modules,
are regular expressions, or need much memory.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pydantic import Field
from safetensors import safe_open

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import ensure
from agentsgym.runs.settings import (
    BUILTIN,
    LARGEST_RANK,
    LoraSettings,
    ModelSettings,
    ModuleName,
    ModuleNames,
)
from agentsgym.types import is_under, real_path
from agentsgym.types.settings import Positive, Text, read
from agentsgym.types.text import short_repr

# Without these files a resumed run would silently restart its optimizer and schedule.
_STATE = ("trainer_state.json", "scheduler.pt")
# The optimizer's of one process and of DDP, of FSDP2, and of ZeRO.
_OPTIMIZER = ("optimizer.pt", "optimizer.bin", "global_step*")
_HUB_SECONDS = 15.0
ADAPTER_CONFIG, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def checkpoint_damage(folder: Path) -> str | None:
    """The problem with the files of a checkpoint, or None."""
    missing = [name for name in _STATE if not (folder / name).is_file()]
    if not any(any(folder.glob(pattern)) for pattern in _OPTIMIZER):
        missing.append(_OPTIMIZER[0])
    if missing:
        return f"{missing[0]} is missing"
    return _first_problem(folder, _OF_STATES) or model_damage(folder)


def adapter_damage(folder: Path) -> str | None:
    """The problem with the files of an adapter directory, or None."""
    if not (folder / _ADAPTER_WEIGHTS).is_file():
        return f"it has no weights in {_ADAPTER_WEIGHTS} (pickled ones are not read)"
    return _first_problem(folder, _OF_MODELS)


def model_damage(folder: Path) -> str | None:
    """The problem with the files of a model or adapter directory, by structure and length, or
    None."""
    if (folder / ADAPTER_CONFIG).is_file():
        return adapter_damage(folder)
    if not (folder / "config.json").is_file():
        return "config.json is missing"
    problem = _first_problem(folder, _OF_MODELS)
    if problem is None and not any(folder.glob("*.safetensors")):
        return "it has no weights in *.safetensors (pickled ones are not read)"
    return problem


def _first_problem(folder: Path, patterns: Sequence[str]) -> str | None:
    for file in folder.iterdir():
        if file.exists() and not (file.is_file() or file.is_dir()):
            return f"{file.name} is no file"  # such as a pipe, which loaders would wait for
    for pattern in patterns:
        for file in sorted(folder.glob(pattern)):
            try:
                _look_at(file)
            except Exception as error:  # each reader raises its own errors for damaged files
                return f"{file.name}: {' '.join(str(error).split())[:100]}"
    return None


def _look_at(file: Path) -> None:
    """Raise an error for a damaged file."""
    if file.suffix == ".safetensors":
        with safe_open(file, "np") as opened:
            opened.keys()
    elif file.suffix == ".json":
        data = json.loads(file.read_bytes())
        if not isinstance(data, dict):
            raise ValueError("no JSON object")
        for part in set(data.get("weight_map", {}).values()):
            if file.name.endswith(".index.json") and not (file.parent / part).is_file():
                raise ValueError(f"{part} is missing")
    else:  # the files of torch.save are ZIP archives with checksums
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} does not have its checksum")


_OF_MODELS = (
    "config.json",
    ADAPTER_CONFIG,
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "*.safetensors.index.json",
    "*.safetensors",
)
_OF_STATES = ("trainer_state.json", "*.pt", "*.pth", "optimizer.bin")


_SUFFIXES = (".safetensors", ".bin", ".gguf")


def weights_digest(path: str) -> str | None:
    """A digest of the names, sizes and times of the weight files in a directory. None if there are
    none here, as for a model on a hub."""
    files = sorted(file for file in Path(path).glob("*") if file.suffix in _SUFFIXES)
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest() if facts else None


# -- LoRA adapters ---------------------------------------------------------------------------------


_Rank = Annotated[int, Field(ge=1, le=LARGEST_RANK)]
_WITHOUT_EFFECT = {
    "auto_mapping",
    "inference_mode",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "task_type",
}


class _StoredLora(LoraSettings):
    """What is read of a stored adapter's configuration."""

    peft_type: Literal["LORA"]
    base_model_name_or_path: Text
    revision: str | None = None
    use_dora: bool = False
    fan_in_fan_out: bool = False
    bias: Literal["none", "all", "lora_only"] = "none"
    modules_to_save: ModuleNames | None = None
    rank_pattern: dict[ModuleName, _Rank] | None = None
    alpha_pattern: dict[ModuleName, Positive] | None = None
    init_lora_weights: Literal[True, False, "gaussian"] = True
    """Other initializations also change the base model, which the directory does not contain."""


@dataclass(frozen=True, slots=True)
class StoredAdapter:
    """An adapter directory: its base model, that model's revision, and settings of PEFT's
    LoraConfig."""

    folder: Path
    base: str
    revision: str | None
    settings: Mapping[str, Any]


def is_adapter(folder: Path) -> bool:
    """Whether a directory holds an adapter instead of a model."""
    return (folder / ADAPTER_CONFIG).is_file()


def read_adapter(folder: Path, base: str | None = None) -> StoredAdapter:
    """The adapter in a directory, without its weights; of the model `base`, if that is known.
    Raises ConfigError if a file is damaged, or if the adapter needs what is not read."""
    problem = adapter_damage(folder)
    if problem is not None:
        raise _no_adapter(folder, problem)
    data = json.loads((folder / ADAPTER_CONFIG).read_bytes())
    known = _StoredLora.model_fields
    for key, value in data.items():
        if key not in known and key not in _WITHOUT_EFFECT and value:
            raise _no_adapter(folder, f"it uses {short_repr(key, 80)} of PEFT, which is not read")
    values = {key: data[key] for key in known if data.get(key) is not None}
    if base is not None:
        values["base_model_name_or_path"] = base
    try:
        stored = read(_StoredLora, values)
    except ConfigError as error:
        raise _no_adapter(folder, str(error)) from None
    not_lora = {"peft_type", "base_model_name_or_path", "revision", "init_lora_weights"}
    settings = stored.model_dump(exclude_unset=True, exclude=not_lora)
    return StoredAdapter(folder, stored.base_model_name_or_path, stored.revision, settings)


def stored_adapter(model: ModelSettings) -> StoredAdapter | None:
    """The adapter, if the section names the directory of one. Raises ConfigError if it is
    damaged."""
    folder = Path(model.path)
    return read_adapter(folder) if is_adapter(folder) else None


def base_section(model: ModelSettings, stored: StoredAdapter | None, trust: bool) -> ModelSettings:
    """The section of the plain model to load: of a stored adapter the base that its directory
    names, if it may. That is a model of the package, one that was downloaded before, or a directory
    in it or of a trusted adapter. Raises ConfigError otherwise."""
    if stored is None:
        return model
    base = stored.base
    belongs = f"the adapter in {stored.folder} belongs to the model {base}"
    if Path(base).is_absolute() or Path(base).is_dir():
        inside = is_under(real_path(base), [real_path(stored.folder)])
        if not (trust or inside):
            raise ConfigError(f"{belongs}; if you trust what is there, add --trust")
        if not Path(base).is_dir():
            raise ConfigError(
                f"{belongs}, which does not exist; if it has moved, correct "
                "base_model_name_or_path in adapter_config.json"
            )
        if is_adapter(Path(base)):
            raise ConfigError(
                f"{belongs}, which is an adapter itself: first merge that one (agentsgym merge)"
            )
    elif not base.startswith(BUILTIN) and not in_hub_cache(base, stored.revision):
        raise ConfigError(
            f"{belongs} of the hub, which was not downloaded here; if you trust it: "
            f"hf download {base}"
        )
    return model.model_copy(update={"path": base, "revision": stored.revision})


def in_hub_cache(name: str, revision: str | None) -> bool:
    """Whether a hub model was downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    try:
        return isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str)
    except ValueError:  # a name that no hub has
        return False


def ask_hub(path: str | Path, section: ModelSettings) -> None:
    """Raise OSError if a model must come from the hub and that does not answer: transformers would
    ask again and again for minutes."""
    from huggingface_hub import constants

    here = Path(path).is_dir() or in_hub_cache(str(path), section.revision)
    if here or constants.HF_HUB_OFFLINE:
        return
    try:
        request = Request(constants.ENDPOINT, method="HEAD")  # noqa: S310 - the user's own hub
        urlopen(request, timeout=_HUB_SECONDS).close()  # noqa: S310
    except HTTPError:  # it answers
        return
    except OSError as error:
        raise OSError(f"{constants.ENDPOINT} does not answer ({error})") from None


def new_adapter(model: Any, lora: LoraSettings, base: str, revision: str | None) -> Any:
    """`model` with a new adapter, which changes nothing until it is trained; the rest is frozen.
    Raises ConfigError if `target_modules` are not in the model."""
    return _adapted(model, lora.model_dump(), base, revision, trainable=True)


def with_stored(model: Any, adapter: StoredAdapter, *, trainable: bool) -> Any:
    """The base model `model` with a stored adapter. Raises ConfigError if it does not fit."""
    from agentsgym.training.checkpoints import load_adapter

    settings = dict(adapter.settings)
    adapted = _adapted(model, settings, adapter.base, adapter.revision, trainable=trainable)
    try:
        load_adapter(adapted, adapter.folder)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return adapted


def _adapted(
    model: Any, settings: dict[str, Any], base: str, revision: str | None, *, trainable: bool
) -> Any:
    ensure("peft", "train")
    from peft import LoraConfig, PeftModelForCausalLM

    alpha = settings.get("lora_alpha")
    if isinstance(alpha, float) and alpha.is_integer():
        settings["lora_alpha"] = int(alpha)  # vLLM expects a whole number
    config = LoraConfig(
        **settings,
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
        revision=revision,
        inference_mode=not trainable,
    )
    try:
        # An adapter is trained in float32; a run samples from a copy in the dtype of the base, and
        # so does an evaluation of the stored adapter.
        return PeftModelForCausalLM(model, config, autocast_adapter_dtype=trainable)
    except ValueError as error:
        raise ConfigError(f"model.lora: {' '.join(str(error).split())[:300]}") from None


def merged(model: Any) -> Any:
    """A model of PEFT with its adapter merged. If input and output share their weights, and the
    adapter changes those of one, each gets its own, so that the result computes what both did."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper
    from torch import nn

    base = model.get_base_model()
    ends = [base.get_output_embeddings(), base.get_input_embeddings()]
    changed = [isinstance(end, BaseTunerLayer | ModulesToSaveWrapper) for end in ends]
    if any(changed) and base.config.get_text_config().tie_word_embeddings:
        end = ends[1] if changed == [True, False] else ends[0]
        plain = end.base_layer if isinstance(end, BaseTunerLayer) else end
        plain.weight = nn.Parameter(plain.weight.detach().clone())
        for config in (base.config, base.config.get_text_config()):
            config.tie_word_embeddings = False
    return model.merge_and_unload()


def _no_adapter(folder: Path, reason: str) -> ConfigError:
    return ConfigError(f"the adapter in {folder} cannot be loaded: {reason}")


# -- loaded weights --------------------------------------------------------------------------------


def cannot_load(path: str | Path, reason: str) -> ConfigError:
    """The error of a model that cannot be loaded."""
    where = "" if Path(path).is_dir() else "there is no such directory, and from the hub: "
    return ConfigError(f"model {str(path)!r} cannot be loaded: {where}{reason}")


def refuse_kernels(config: Any, attention: str | None) -> None:
    """Raise ValueError if a model's configuration or class names an attention kernel that
    transformers would download: it is code."""
    from transformers import AutoModelForCausalLM

    parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", ())]
    for part in (config, *parts):
        kernel = str(getattr(part, "_attn_implementation", None) or "")
        if "/" in kernel:
            raise ValueError(
                f"its config.json names the attention {kernel!r}, which is code of the hub; "
                "take attn_implementation out of it"
            )
    flash = attention or ""
    if flash.startswith("flash") and type(config) in AutoModelForCausalLM._model_mapping:
        kind = AutoModelForCausalLM._model_mapping[type(config)]
        kernels = getattr(kind, "_compatible_flash_implementations", None) or ()
        if kernels and flash not in kernels:
            raise ValueError(
                f"it runs with {' or '.join(kernels)} instead of {flash}, which is code of the "
                "hub; leave model.attn_implementation out"
            )


def check_loaded(path: str | Path, model: Any, tokenizer: Any, loading: Mapping[str, Any]) -> None:
    """Raise ConfigError if weights are missing or not finite, or if the tokenizer belongs to
    another model."""
    for entry in sorted(loading["mismatched_keys"]):
        name = entry[0] if isinstance(entry, tuple) else entry
        raise cannot_load(path, f"{name!r} in its files has another shape than config.json")
    missing = sorted(loading["missing_keys"])
    if missing:
        kind = type(model).__name__
        lacks = f"its files lack {len(missing)} weights of a {kind}, {missing[0]!r} among them"
        raise cannot_load(path, lacks)
    for name, parameter in model.named_parameters():
        if not math.isfinite(float(parameter.detach().float().sum())):
            raise cannot_load(path, f"the weights {name!r} are not finite")
    check_vocabulary(path, model, tokenizer)


def check_vocabulary(path: str | Path, model: Any, tokenizer: Any) -> None:
    """Raise ConfigError if a tokenizer has more tokens than a model reads."""
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        wrong = f"its tokenizer has {len(tokenizer)} tokens and the model's embedding {rows}"
        raise cannot_load(path, wrong)
