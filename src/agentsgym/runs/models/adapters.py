"""LoRA adapters: new ones, and those in directories, which may be a stranger's.

Of a stored adapter's configuration only the keys below are read. PEFT knows others that import
modules, are regular expressions, or need much memory.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import ensure
from agentsgym.runs.checkpoints import ADAPTER_CONFIG, adapter_damage
from agentsgym.runs.settings import LARGEST_RANK, LoraSettings, ModuleName, ModuleNames
from agentsgym.types.settings import Positive, Text, read
from agentsgym.types.text import short_repr

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
        raise _cannot_load(folder, problem)
    data = json.loads((folder / ADAPTER_CONFIG).read_bytes())
    known = _StoredLora.model_fields
    for key, value in data.items():
        if key not in known and key not in _WITHOUT_EFFECT and value:
            raise _cannot_load(folder, f"it uses {short_repr(key, 80)} of PEFT, which is not read")
    values = {key: data[key] for key in known if data.get(key) is not None}
    if base is not None:
        values["base_model_name_or_path"] = base
    try:
        stored = read(_StoredLora, values)
    except ConfigError as error:
        raise _cannot_load(folder, str(error)) from None
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


def _cannot_load(folder: Path, reason: str) -> ConfigError:
    return ConfigError(f"the adapter in {folder} cannot be loaded: {reason}")
