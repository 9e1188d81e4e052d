"""The section `model` of a run: which model, in which precision, with which chat template."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

CHAT, SCRIPTED = "chat:", "agent:"
TINY, BUILTIN = "tiny", "builtin:"
SMOLLM2 = "builtin:smollm2"  # another package brings it
ALL_LINEAR = "all-linear"
_TEMPLATES = ("own", "training")


class LoraSettings(BaseModel):
    """A LoRA adapter that is trained instead of the whole model; the names are PEFT's.

    `target_modules` is a list of module names, or `all-linear` for every linear layer but the head.
    `layers_to_transform` are the numbers of the layers, from 0, that get an adapter (null: all);
    backward passes end at the lowest one. PEFT takes it with a list of names only.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    r: int = Field(default=16, ge=1, le=4096)
    lora_alpha: float = Field(default=32.0, gt=0, allow_inf_nan=False)
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: str | list[str] = ALL_LINEAR
    layers_to_transform: list[Annotated[int, Field(ge=0)]] | None = Field(
        default=None, min_length=1
    )
    use_rslora: bool = False

    @field_validator("target_modules")
    @classmethod
    def _no_pattern(cls, given: str | list[str]) -> str | list[str]:
        # PEFT reads another text as a regular expression, and a stored run may be a stranger's.
        if given != ALL_LINEAR and (isinstance(given, str) or not given):
            raise ValueError(f"must be {ALL_LINEAR} or a list of module names, got {given!r}")
        return given

    @model_validator(mode="after")
    def _layers_of_named_modules(self) -> "LoraSettings":
        if self.layers_to_transform is not None and self.target_modules == ALL_LINEAR:
            raise ValueError("layers_to_transform needs target_modules as a list of module names")
        return self


class ModelConfig(BaseModel):
    """The model of a run. In a file, a plain string is its `path`.

    `path` is a model directory, an adapter directory or a hub name (of which `revision` is a branch
    or commit), `builtin:NAME` for a checkpoint in the package, or `tiny` for a new small model;
    `eval` and `play` also take `chat:NAME` and `agent:NAME`. `dtype` `auto` is bfloat16 where the
    hardware multiplies it natively, otherwise float32; the package's own models are float32.
    `chat_template` is the tokenizer's `own`, TRL's `training` template, or a `.jinja` file.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    path: str = Field(default=TINY, min_length=1)
    revision: str | None = Field(default=None, min_length=1)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attn_implementation: str | None = None
    chat_template: str = "own"
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    lora: LoraSettings | None = None
    quantization: Literal["4bit", "8bit"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_string_is_the_path(cls, given: Any) -> Any:
        return {"path": given} if isinstance(given, str) else given

    @field_validator("attn_implementation")
    @classmethod
    def _no_kernel(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"\w+", name):
            raise ValueError(
                f"{name!r} is not the name of an attention in transformers (sdpa, eager, "
                "flash_attention_2, …); code of the hub is never loaded"
            )
        return name

    @field_validator("chat_template")
    @classmethod
    def _template(cls, given: str) -> str:
        if given not in _TEMPLATES and not given.endswith(".jinja"):
            raise ValueError(f"must be own, training or the path of a .jinja file, got {given!r}")
        return given

    _foreign: bool = PrivateAttr(default=False)

    @property
    def may_download(self) -> bool:
        """Whether files may come from the hub: not if only a run directory names the model."""
        return not self._foreign

    def without_downloads(self) -> "ModelConfig":
        """The same model, which must already be on this machine."""
        copy = self.model_copy()
        copy._foreign = True
        return copy

    @property
    def template_file(self) -> str | None:
        """The path of the chat template, if it is a file."""
        return None if self.chat_template in _TEMPLATES else self.chat_template

    @property
    def is_ours(self) -> bool:
        """Whether the package itself brings or makes the model, small and in float32."""
        return self.path == TINY or (self.path.startswith(BUILTIN) and self.path != SMOLLM2)

    @property
    def precision(self) -> str:
        """`dtype`, where `auto` is settled for models too small to gain from fewer bits."""
        return "float32" if self.dtype == "auto" and self.is_ours else self.dtype

    def at(self, path: str) -> "ModelConfig":
        """These settings for the weights that a run trained from this model: its directory also
        has the adapter's settings and the chat template."""
        found = {"path": path, "revision": None, "dtype": self.precision, "lora": None}
        if self.template_file is not None:
            found["chat_template"] = "own"
        return self.model_copy(update=found)


def changed(before: Any, given: Any) -> Any:
    """The section after the override `model=…`: a string changes the path and keeps the other
    settings, except the revision, which belonged to the former path."""
    if not isinstance(given, str) or not isinstance(before, Mapping):
        return given
    return {**before, "path": given, "revision": None}
