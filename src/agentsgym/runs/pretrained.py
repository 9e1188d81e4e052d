"""Models, adapters and tokenizers from a directory or a hub, which may be a stranger's: checked
safetensors weights, no code.

Of a stored adapter's configuration only some keys are read. PEFT knows others that import modules,
are regular expressions, or need much memory.
"""

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pydantic import Field

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import ensure
from agentsgym.runs.checkpoints import ADAPTER_CONFIG, adapter_damage, model_damage
from agentsgym.runs.settings import (
    LARGEST_RANK,
    LoraSettings,
    ModelSettings,
    ModuleName,
    ModuleNames,
)
from agentsgym.types.settings import Positive, Text, read
from agentsgym.types.text import short_repr

_HUB_SECONDS = 15.0
_PLAIN = ModelSettings()


# -- loading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model and its tokenizer; `figures` describe its warm start."""

    model: Any
    tokenizer: Any
    figures: dict[str, Any] = field(default_factory=dict)


def load_pretrained(
    path: str | Path, section: ModelSettings = _PLAIN, dtype: str = "float32"
) -> Policy:
    """A model directory or hub name; of the section count its revision, attention and
    quantization. Only safetensors files are read, and a model's own code is never run. Raises
    ConfigError if it cannot be loaded completely, or if it is an adapter."""
    from transformers import AutoConfig, AutoModelForCausalLM

    source, folder = source_of(section), Path(path)
    if folder.is_dir():
        problem = model_damage(folder)
        if problem is None and not has_tokenizer(folder):
            problem = "it has no tokenizer (tokenizer_config.json)"
        if problem is not None:
            raise _cannot_load(path, problem)
    try:
        ask_hub(path, section)
        _refuse_adapter(path, section)
        _refuse_kernels(AutoConfig.from_pretrained(path, **source), section)
        tokenizer = _tokenizer(path, section)
        model, report = AutoModelForCausalLM.from_pretrained(
            path,
            **source,
            **_weights(section, dtype),
            ignore_mismatched_sizes=True,  # mismatches are refused below, by name
            output_loading_info=True,
        )
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise _cannot_load(path, _reason(error)) from error
    _check_loaded(path, model, tokenizer, report)
    return Policy(model, tokenizer)


def reloaded(folder: Path, model: Any, tokenizer: Any) -> Any:
    """A model like `model` with the weights in a directory, whose other files are not read. Raises
    ConfigError for those of another model."""
    problem = model_damage(folder) if folder.is_dir() else "there is no such directory"
    if problem is not None:
        raise _cannot_load(folder, problem)
    try:
        new, report = type(model).from_pretrained(
            folder,
            config=copy.deepcopy(model.config),
            dtype=model.dtype,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise _cannot_load(folder, _reason(error)) from error
    _check_loaded(folder, new, tokenizer, report)
    return new.to(model.device)


def pretrained_tokenizer(path: str | Path, section: ModelSettings = _PLAIN) -> Any:
    """The tokenizer of a model directory or hub name, without its weights. Raises ConfigError if
    it does not exist."""
    try:
        ask_hub(path, section)
        return _tokenizer(path, section)
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise _cannot_load(path, _reason(error)) from error


def _tokenizer(path: str | Path, section: ModelSettings) -> Any:
    """Raises ValueError for one without tokens, which transformers makes where there is none."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, **source_of(section))
    if not tokenizer.encode("text", add_special_tokens=False):
        raise ValueError("it has no tokenizer, or one that has no token for a text")
    return tokenizer


def has_tokenizer(folder: Path) -> bool:
    """Whether a directory contains a tokenizer."""
    return (folder / "tokenizer_config.json").is_file()


def source_of(section: ModelSettings) -> dict[str, Any]:
    """The arguments of every loader of transformers."""
    return {"revision": section.revision or "main", "trust_remote_code": False}


def _weights(section: ModelSettings, dtype: str) -> dict[str, Any]:
    """The arguments of the loader of weights."""
    import torch
    from transformers import BitsAndBytesConfig

    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "use_safetensors": True}
    if section.attn_implementation is not None:
        options["attn_implementation"] = section.attn_implementation
    if section.quantization is not None:
        four = {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": options["dtype"],
        }
        bits = four if section.quantization == "4bit" else {"load_in_8bit": True}
        options["quantization_config"] = BitsAndBytesConfig(**bits)
        options["device_map"] = {"": torch.cuda.current_device()}
    return options


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


def _refuse_adapter(path: str | Path, section: ModelSettings) -> None:
    """Raise ValueError for an adapter on the hub, whose base transformers would download."""
    from transformers.utils.peft_utils import find_adapter_config_file

    if find_adapter_config_file(str(path), revision=section.revision):
        raise ValueError(
            "it is an adapter; download it into a directory (hf download NAME --local-dir DIR) and "
            "name that"
        )


def _refuse_kernels(config: Any, section: ModelSettings) -> None:
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
    flash = section.attn_implementation or ""
    if flash.startswith("flash") and type(config) in AutoModelForCausalLM._model_mapping:
        kind = AutoModelForCausalLM._model_mapping[type(config)]
        kernels = getattr(kind, "_compatible_flash_implementations", None) or ()
        if kernels and flash not in kernels:
            raise ValueError(
                f"it runs with {' or '.join(kernels)} instead of {flash}, which is code of the "
                "hub; leave model.attn_implementation out"
            )


def _cannot_load(path: str | Path, reason: str) -> ConfigError:
    where = "" if Path(path).is_dir() else "there is no such directory, and from the hub: "
    return ConfigError(f"model {str(path)!r} cannot be loaded: {where}{reason}")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {text}"


def _check_loaded(path: str | Path, model: Any, tokenizer: Any, loading: Mapping[str, Any]) -> None:
    """Raise ConfigError if weights are missing or not finite, or if the tokenizer belongs to
    another model."""
    for entry in sorted(loading["mismatched_keys"]):
        name = entry[0] if isinstance(entry, tuple) else entry
        raise _cannot_load(path, f"{name!r} in its files has another shape than config.json")
    missing = sorted(loading["missing_keys"])
    if missing:
        kind = type(model).__name__
        lacks = f"its files lack {len(missing)} weights of a {kind}, {missing[0]!r} among them"
        raise _cannot_load(path, lacks)
    for name, parameter in model.named_parameters():
        if not math.isfinite(float(parameter.detach().float().sum())):
            raise _cannot_load(path, f"the weights {name!r} are not finite")
    check_vocabulary(path, model, tokenizer)


def check_vocabulary(path: str | Path, model: Any, tokenizer: Any) -> None:
    """Raise ConfigError if a tokenizer has more tokens than a model reads."""
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        wrong = f"its tokenizer has {len(tokenizer)} tokens and the model's embedding {rows}"
        raise _cannot_load(path, wrong)


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

    Raises ConfigError if a file is damaged, or if the adapter needs what is not read.
    """
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


def new_adapter(model: Any, lora: LoraSettings, base: str, revision: str | None) -> Any:
    """`model` with a new adapter, which changes nothing until it is trained; the rest is frozen.

    Raises ConfigError if `target_modules` are not in the model.
    """
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
