"""The settings of a run: one tree, typed to the leaves, read once and handed on as objects.

A package's own section stands in its `settings.py`; here they are composed. What `train` has beside
the settings of ours is TRL's, and checked with them by `train_settings`, before anything is loaded.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator

from agentsgym.generation.settings import EngineSettings
from agentsgym.runs.files.rollouts import KeepRollouts
from agentsgym.training.settings import RaySettings, TrainSection
from agentsgym.types.names import ConfigError
from agentsgym.types.settings import Count, NotNegative, Positive, Section, Seed, Text, read
from agentsgym.types.text import MASK, masked, remember_secret, secrets_in
from agentsgym.warm_start.settings import WarmStartSettings

CHAT, SCRIPTED = "chat:", "agent:"
TINY, BUILTIN = "tiny", "builtin:"
SMOLLM2 = "builtin:smollm2"  # another package brings it
_TEMPLATES = ("own", "training")
_DEEPEST, _MOST = 40, 100_000
LARGEST_RANK = 4096
# The names of a kernel on the hub, which is code, are none of these.
Attention = Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3", "flash_attention_4"]
# PEFT reads other signs, and a text alone, as a regular expression; a run may be a stranger's.
ModuleName = Annotated[str, Field(pattern=r"^[\w.]{1,200}$")]
ModuleNames = Annotated[list[ModuleName], Field(min_length=1, max_length=10_000)]


class LoraSettings(Section):
    """A LoRA adapter that is trained instead of the whole model; the names are PEFT's."""

    r: int = Field(default=16, ge=1, le=LARGEST_RANK, description="Rank.")
    lora_alpha: Positive = Field(default=32.0, description="The adapter's scale is lora_alpha / r.")
    lora_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="Dropout of the adapter's input."
    )
    target_modules: Literal["all-linear"] | ModuleNames = Field(
        default="all-linear",
        description="Module names, or all-linear for every linear layer except the head.",
    )
    layers_to_transform: list[Annotated[int, Field(ge=0)]] | None = Field(
        default=None,
        min_length=1,
        description="Indices, from 0, of the layers that get an adapter; None: all layers. Needs "
        "a list in target_modules. Backward passes end at the lowest of these layers.",
    )
    use_rslora: bool = Field(
        default=False, description="Divide lora_alpha by the square root of r instead of r."
    )

    @model_validator(mode="after")
    def _layers_of_named_modules(self) -> Self:
        if self.layers_to_transform is not None and self.target_modules == "all-linear":
            raise ValueError("layers_to_transform needs target_modules as a list of module names")
        return self


class ModelSettings(Section):
    """The `model` section. In a file, `model: TEXT` sets `model.path`."""

    main_key = "path"

    path: Text = Field(
        default=TINY,
        description="A model directory, an adapter directory, a hub name, builtin:NAME, or tiny "
        "for a new small model; `eval` and `play` also accept chat:NAME and agent:NAME "
        "(docs/evaluation.md).",
    )
    revision: Text | None = Field(default=None, description="Branch, tag or commit of a hub model.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="Data type of forward and backward passes; auto: float32 for the package's own "
        "models, for others bfloat16 if the hardware supports it, otherwise float32.",
    )
    attn_implementation: Attention | None = Field(
        default=None,
        description="Attention implementation of transformers; None: transformers' default.",
    )
    chat_template: str = Field(
        default="own",
        description="own: the tokenizer's template; training: TRL's training template; or the path "
        "of a .jinja file.",
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Variables that are passed to the template."
    )
    lora: LoraSettings | None = Field(
        default=None, description="Train an adapter; None: train all weights."
    )
    quantization: Literal["4bit", "8bit"] | None = Field(
        default=None, description="Quantize the frozen base model; needs lora and a GPU."
    )

    @field_validator("chat_template")
    @classmethod
    def _template(cls, value: str) -> str:
        if value not in _TEMPLATES and not value.endswith(".jinja"):
            raise ValueError(f"must be own, training or the path of a .jinja file, got {value!r}")
        return value

    @property
    def template_file(self) -> str | None:
        """The path of the chat template, if it is a file."""
        return None if self.chat_template in _TEMPLATES else self.chat_template

    @property
    def template_choice(self) -> str:
        """`chat_template`, but "own" for a file, whose text is in the tokenizer."""
        return "own" if self.template_file is not None else self.chat_template

    @property
    def is_ours(self) -> bool:
        """Whether the package itself brings or makes the model, small and in float32."""
        return self.path == TINY or (self.path.startswith(BUILTIN) and self.path != SMOLLM2)

    @property
    def precision(self) -> str:
        """`dtype`, where `auto` is settled for models too small to gain from fewer bits."""
        return "float32" if self.dtype == "auto" and self.is_ours else self.dtype

    def at(self, path: str) -> "ModelSettings":
        """These settings for the weights that a run trained from this model: its directory also
        has the adapter's settings and the chat template."""
        changes = {"path": path, "revision": None, "dtype": self.precision, "lora": None}
        return self.model_copy(update={**changes, "chat_template": self.template_choice})


class EvalSettings(Section):
    """The evaluations before and after training."""

    rollouts: Count = Field(
        default=256,
        description="Total number of rollouts; each task is played rollouts_per_task times, or "
        "more often if there are too few tasks.",
    )
    temperature: NotNegative = Field(default=1.0, description="Sampling temperature; 0 is greedy.")
    rollouts_per_task: Count = Field(default=1, description="Rollouts per task.")
    seed: Seed = Field(default=0, description="Seed of the tasks and the sampling noise.")


class DataSettings(Section):
    """Files of dataset rows that replace the environment's own tasks."""

    train: str | None = Field(default=None, description="File of the training tasks.")
    eval: str | None = Field(default=None, description="File of the evaluation tasks.")


class RunConfig(Section):
    """A training run."""

    name: str = Field(
        default="run",
        pattern=r"^\w[\w.-]*$",
        description="The run's name; by default the name of the configuration file.",
    )
    description: str = Field(default="", description="For the reader: what it is.")
    needs: str = Field(default="", description="For the reader: what it needs.")
    costs: str = Field(default="", description="For the reader: its time and memory.")
    run_on: str = Field(default="", description="For the reader: where it was tried.")
    chosen: dict[str, str] = Field(
        default_factory=dict,
        description="For the reader: why `train: auto` chose settings of this run, by key.",
    )
    seed: Seed = Field(
        default=0, description="Seed of training; `warm_start.seed` and `eval.seed` are others."
    )
    env: str = Field(description="Name of a registered environment, or dotted path of a class.")
    env_config: dict[str, Any] = Field(
        default_factory=dict,
        description="The environment's settings; `agentsgym envs NAME` lists them.",
    )
    model: ModelSettings = Field(default_factory=ModelSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    warm_start: WarmStartSettings = Field(default_factory=WarmStartSettings)
    data: DataSettings = Field(default_factory=DataSettings)
    keep_rollouts: KeepRollouts = Field(default_factory=KeepRollouts)
    ray: RaySettings = Field(default_factory=RaySettings)
    train: TrainSection = Field(default_factory=TrainSection)
    eval: EvalSettings = Field(default_factory=EvalSettings)
    signal_check: bool = Field(
        default=True,
        description="Stop before the first evaluation, or after a warm start, if hardly any action "
        "is legal and hardly any group has signal (docs/concepts.md).",
    )
    max_seconds: Positive | None = Field(
        default=None,
        description="Seconds after which RL ends, at the end of a generation. If no number of "
        "steps is set, the learning rate is constant.",
    )
    keep_best: bool = Field(
        default=False,
        description="Keep the weights after the four consecutive training steps with the highest "
        "mean reward; the run ends with these weights if they earn more than the last weights in "
        "256 training games.",
    )
    checkpoint_seconds: Positive = Field(
        default=180.0,
        description="Seconds between checkpoints; more if saving takes over a tenth of this time. "
        "`train.save_strategy: no` turns checkpoints off.",
    )
    distributed: Literal["ddp", "zero2", "fsdp2"] = Field(
        default="ddp",
        description="What the processes shard: nothing (ddp), optimizer states and gradients "
        "(zero2, DeepSpeed), or also the weights (fsdp2, needs servers).",
    )
    threads: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        default=None,
        description="Total number of torch threads of all processes on a machine; None: torch's "
        "default.",
    )
    output_dir: Path | None = Field(
        default=None, strict=False, description="The run's directory; None: runs/NAME."
    )

    @property
    def directory(self) -> Path:
        """The run's directory: `output_dir`, or else `runs/<name>`."""
        return self.output_dir or Path("runs") / self.name

    @property
    def is_auto(self) -> bool:
        """Whether a probe of the game chooses what is not given: with `train: auto`, and for a new
        model without a section `train` or an end."""
        given = self.train.given.keys() - {"trust"}
        ends = self.max_seconds is not None or given & {"max_steps", "num_train_epochs"}
        return "preset" in given or (self.model.path == TINY and not (given and ends))

    @property
    def warm_starts(self) -> bool:
        """Whether the run begins with a warm start of a pretrained model."""
        return self.model.path != TINY and self.warm_start.source is not None

    def warm_start_settings(self) -> WarmStartSettings:
        """The section `warm_start` with the defaults of the run's model. Raises ConfigError with a
        key that has no effect."""
        try:
            return self.warm_start.resolved(new_model=self.model.path == TINY)
        except ValueError as error:
            raise ConfigError(f"warm_start.{error}") from None

    def to_yaml(self) -> str:
        """The configuration as YAML that can be read back; keys and URL credentials are masked."""
        data = masked(self.model_dump(mode="json"))
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def parse_config(data: Mapping[str, Any]) -> RunConfig:
    """Check a mapping and convert it to a RunConfig; of `env_config` and of TRL's settings in
    `train`, only the form. Raises ConfigError with the wrong key and the allowed values."""
    _check_size(data)
    config = read(RunConfig, data)
    for key, value in secrets_in(config.model_dump()):
        if MASK in value:
            raise ConfigError(f"{key} is masked, because keys are not stored; add {key}=…")
        remember_secret(value)
    return config


def _check_size(data: Any) -> None:
    """Raise ConfigError for a number that is not finite, or for a recursive value (YAML's aliases
    can make a list that contains itself)."""
    left = _MOST
    waiting: list[tuple[str, Any]] = list(data.items()) if isinstance(data, Mapping) else []
    while waiting:
        key, value = waiting.pop()
        left -= 1
        if left < 0 or str(key).count(".") > _DEEPEST:
            raise ConfigError(f"{str(key)[:60]} is nested too deeply or too large")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} is {value}; a number must be finite")
        if isinstance(value, Mapping):
            waiting += [(f"{key}.{name}", item) for name, item in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{key}.{index}", item) for index, item in enumerate(value)]
