"""GRPOEnvConfig: TRL's GRPOConfig and what training on environments adds to it."""

import json
import warnings
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from trl import GRPOConfig

from agentsgym.credit import find_estimator
from agentsgym.training.checkpoints import choose_metric, choose_mode
from agentsgym.training.setting_checks import check_combinations
from agentsgym.training.settings import OWN_TYPES, TRAIN_CAPACITY, TrainSettings, values_section
from agentsgym.training.trl_settings import refuse_settings, trl_types
from agentsgym.types.settings import read
from agentsgym.types.text import masked

_VALUES = values_section(trl_types() | OWN_TYPES)


@dataclass
class GRPOEnvConfig(TrainSettings, GRPOConfig):  # type: ignore[misc]
    """Settings of `GRPOEnvTrainer`.

    TRL's names keep their meaning; `per_device_train_batch_size` counts rollouts,
    `num_generations` is the number of rollouts of a task, `scale_rewards` belongs to the "grpo"
    estimator. docs/settings.md has all of them. Raises ValueError for a value outside its range,
    for a setting that would be ignored, and for a combination that would train something else than
    asked.
    """

    # TRL's fields, of which versions of TRL have different defaults.
    use_bias_correction_kl: bool = field(
        default=True, metadata={"help": "Whether KL is weighted by the importance ratio."}
    )
    router_aux_loss_coef: float | None = field(
        default=None,
        metadata={
            "help": "Weight of the experts' load-balancing loss; None: the model's own weight."
        },
    )

    def __post_init__(self) -> None:
        if getattr(self, "bf16", None) is None and not self.fp16:
            self.bf16: bool = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        self._read_values()
        refuse_settings(self)
        choose_metric(self)
        self._check_with_trl()
        choose_mode(self)
        check_combinations(self)

    def _read_values(self) -> None:
        """Check types and ranges, and bring what YAML or a command line gives into their shape."""
        names = [each.name for each in fields(self) if each.name in _VALUES.model_fields]
        values = read(_VALUES, {name: getattr(self, name, None) for name in names})
        for name in OWN_TYPES:
            setattr(self, name, getattr(values, name))
        kwargs: Any = self.chat_template_kwargs
        if isinstance(kwargs, str):  # newer versions of transformers read the JSON themselves
            self.chat_template_kwargs: dict[str, Any] | None = json.loads(kwargs)
        if self.engine.capacity is None:
            self.engine = self.engine.model_copy(update={"capacity": TRAIN_CAPACITY})

    def _check_with_trl(self) -> None:
        """TRL's own checks, without two: an evaluation plays tasks itself, so no batch of it must
        be divisible; and a copy of a configuration has both sizes of a generation."""
        size = self.generation_batch_size
        if self.steps_per_generation is not None:
            self.generation_batch_size: Any = None
        self.num_generations_eval: int | None = 1
        with warnings.catch_warnings():  # about TRL's own default of gradient_checkpointing
            warnings.filterwarnings("ignore", "`gradient_checkpointing", FutureWarning)
            super().__post_init__()
        self.num_generations_eval = None
        if size is not None and size != self.generation_batch_size:
            raise ValueError(
                f"generation_batch_size={size} does not agree with steps_per_generation="
                f"{self.steps_per_generation}, which makes it {self.generation_batch_size}"
            )

    def to_dict(self) -> dict[str, Any]:
        """The settings as trackers store them, without the credentials in addresses."""
        plain = super().to_dict() | {
            "engine": self.engine.model_dump(),
            "ray": self.ray.model_dump(),
        }
        return {name: masked(value, name) for name, value in plain.items()}

    @property
    def estimator_options(self) -> dict[str, Any]:
        """`advantage_options`, with TRL's `scale_rewards` for the estimator that it belongs to."""
        options: dict[str, Any] = dict(self.advantage_options or {})  # type: ignore[arg-type]
        own = {"scale_rewards": self.scale_rewards} if self.estimator_scales else {}
        return own | options

    @property
    def estimator_scales(self) -> bool:
        """Whether `scale_rewards` belongs to the estimator."""
        return find_estimator(self.advantage_estimator).takes_scale_rewards

    @property
    def norm_tokens(self) -> int | None:
        """Denominator of "dr_grpo", in tokens."""
        return self.loss_norm_tokens or self.max_rollout_tokens

    @property
    def updates_per_generation(self) -> int:
        """Optimizer steps that one generation feeds; checkpoints fall on their multiples. (TRL's
        `steps_per_generation` counts micro-batches.)"""
        updates: int = self.steps_per_generation // self.gradient_accumulation_steps
        return updates * int(self.num_iterations)
