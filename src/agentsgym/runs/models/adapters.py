"""LoRA adapters: new ones, and those in directories, which may be a stranger's.

Of a stored adapter's configuration only the keys below are read. PEFT knows others that import
modules, are regular expressions, or need much memory.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import ensure
from agentsgym.runs.checkpoints import ADAPTER_CONFIG, adapter_damage
from agentsgym.runs.settings import ALL_LINEAR, LoraSettings

_LARGEST_RANK = 4096
_MOST_NAMES = 10_000


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


def read_adapter(folder: Path) -> StoredAdapter:
    """The adapter in a directory, without its weights.

    Raises ConfigError if a file is damaged, or if the adapter needs what is not read.
    """
    problem = adapter_damage(folder)
    if problem is not None:
        raise _cannot_load(folder, problem)
    data = json.loads((folder / ADAPTER_CONFIG).read_bytes())
    if data.get("peft_type") != "LORA":
        raise _cannot_load(folder, f"its peft_type is {_short(data.get('peft_type'))}, not 'LORA'")
    base, revision = data.get("base_model_name_or_path"), data.get("revision")
    if not isinstance(base, str) or not base or not isinstance(revision, str | None):
        raise _cannot_load(folder, f"{ADAPTER_CONFIG} names no base model")
    return StoredAdapter(folder, base, revision, _settings(folder, data))


def _settings(folder: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in data.items():
        readable = _READ.get(key) or _CHECKED.get(key)
        if readable is None and value and key not in _WITHOUT_EFFECT:
            raise _cannot_load(folder, f"it uses {_short(key)} of PEFT, which is not read")
        if readable is not None and not readable(value):
            raise _cannot_load(folder, f"its {key} is {_short(value)}, which is not read")
    return {key: data[key] for key in _READ if key in data}


def new_adapter(model: Any, lora: LoraSettings, base: str, revision: str | None) -> Any:
    """`model` with a new adapter, which changes nothing until it is trained; the rest is frozen.

    Raises ConfigError if `target_modules` are not in the model.
    """
    settings = lora.model_dump()
    if lora.lora_alpha.is_integer():
        settings["lora_alpha"] = int(lora.lora_alpha)  # vLLM expects a whole number
    return _adapted(model, settings, base, revision, trainable=True)


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


def _cannot_load(folder: Path, reason: str) -> ConfigError:
    return ConfigError(f"the adapter in {folder} cannot be loaded: {reason}")


def _short(given: object) -> str:
    return repr(given)[:80]


def _is_flag(given: Any) -> bool:
    return type(given) is bool


def _is_positive(given: Any) -> bool:
    return type(given) in (int, float) and 0 < given < float("inf")


def _are_names(given: Any) -> bool:
    """Whether it is a list of module names, without the signs of a regular expression."""
    return (
        isinstance(given, list)
        and 0 < len(given) <= _MOST_NAMES
        and all(isinstance(name, str) and re.fullmatch(r"[\w.]{1,200}", name) for name in given)
    )


def _are_numbers(given: Any) -> bool:
    """Whether it is a list of layer numbers."""
    return (
        isinstance(given, list)
        and 0 < len(given) <= _MOST_NAMES
        and all(type(number) is int and number >= 0 for number in given)
    )


def _are_per_module(given: Any) -> bool:
    if not given:
        return given is None or given == {}
    return isinstance(given, dict) and _are_names(list(given)) and all(map(_fits, given.values()))


def _fits(rank: Any) -> bool:
    return _is_positive(rank) and rank <= _LARGEST_RANK


# The keys that are read, with a check of each value.
_READ: Mapping[str, Callable[[Any], bool]] = {
    "r": lambda given: type(given) is int and _fits(given),
    "lora_alpha": _is_positive,
    "lora_dropout": lambda given: given == 0 or (_is_positive(given) and given < 1),
    "target_modules": lambda given: given == ALL_LINEAR or _are_names(given),
    "layers_to_transform": lambda given: given is None or _are_numbers(given),
    "use_rslora": _is_flag,
    "use_dora": _is_flag,
    "fan_in_fan_out": _is_flag,
    "bias": lambda given: given in ("none", "all", "lora_only"),
    "modules_to_save": lambda given: given is None or _are_names(given),
    "rank_pattern": _are_per_module,
    "alpha_pattern": _are_per_module,
}
# Other initializations also change the base model, which the directory does not contain.
_CHECKED: Mapping[str, Callable[[Any], bool]] = {
    "init_lora_weights": lambda given: given in (True, False, "gaussian"),
}
_WITHOUT_EFFECT = {
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "revision",
    "task_type",
}
