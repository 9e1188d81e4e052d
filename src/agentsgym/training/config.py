"""GRPOEnvConfig: TRL's GRPOConfig and what training on environments adds to it."""

from dataclasses import dataclass, field
from typing import Any

import torch
from trl import GRPOConfig

from agentsgym.credit import check_estimator
from agentsgym.training.best import choose_metric, choose_mode
from agentsgym.training.weights import NORMALISERS

SCOPES = ("token", "step", "rollout")

# Settings of TRL that our loss does not have. Set to anything else than this, they would be
# ignored in silence.
_UNSUPPORTED: dict[str, Any] = {
    "importance_sampling_level": "token",
    "mask_truncated_completions": False,
    "multi_objective_aggregation": "sum_then_normalize",
    "off_policy_mask_threshold": None,
    "top_entropy_quantile": 1.0,
    "use_adaptive_entropy": False,
    "use_transformers_continuous_batching": False,
    "min_p": None,
    "repetition_penalty": 1.0,
    "reward_weights": None,
}


@dataclass
class GRPOEnvConfig(GRPOConfig):  # type: ignore[misc]
    """Settings of `GRPOEnvTrainer`.

    TRL's names keep their meaning; `per_device_train_batch_size` counts rollouts,
    `num_generations` is the number of rollouts of a task, `scale_rewards` belongs to the "grpo"
    estimator. Raises ValueError for a combination that would train something else than asked.
    """

    advantage_estimator: str = field(
        default="grpo",
        metadata={
            "help": "How credit is assigned: 'grpo', 'rloo', 'step_return', 'gigpo', 'trial', "
            "'reward', or the dotted path of a function."
        },
    )
    advantage_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "Options of the estimator."}
    )
    scale_step_rewards: str = field(
        default="none",
        metadata={
            "help": "'batch' divides each environment's step rewards by the standard deviation of "
            "its final rewards in the batch, before credit is assigned."
        },
    )
    train_on: str = field(
        default="rollout",
        metadata={
            "help": "'rollout': one row where the context only grows; 'steps': a row per step."
        },
    )
    ratio_scope: str = field(
        default="token",
        metadata={"help": "Scope of the importance ratio: 'token', 'step' or 'rollout'."},
    )
    sampler_correction: str = field(
        default="truncate",
        metadata={
            "help": "Correct for an engine whose probabilities differ from the trainer's: "
            "'truncate' the token's ratio at `sampler_cap`, or 'none'."
        },
    )
    sampler_cap: float = field(default=2.0, metadata={"help": "See sampler_correction."})
    train_truncated_actions: bool = field(
        default=True,
        metadata={"help": "Whether actions that the token cap cut off carry loss."},
    )
    zero_signal_groups: str = field(
        default="keep",
        metadata={
            "help": "Groups whose advantages are all zero: 'keep' them, 'drop' them from the "
            "loss's denominators, or 'resample' them with other tasks."
        },
    )
    max_resample_rounds: int = field(
        default=2, metadata={"help": "How often 'resample' plays other tasks at most."}
    )
    max_action_tokens: int = field(default=64, metadata={"help": "Token cap of one action."})
    max_rollout_tokens: int | None = field(
        default=None, metadata={"help": "Token cap of a rollout's context; None: no cap."}
    )
    stop_strings: list[str] = field(
        default_factory=list, metadata={"help": "Texts that end an action."}
    )
    max_tokens_per_forward: int = field(
        default=16384,
        metadata={"help": "Padded tokens in one forward pass of the loss; bounds memory."},
    )
    loss_norm_tokens: int | None = field(
        default=None,
        metadata={"help": "Denominator of 'dr_grpo'; None: max_rollout_tokens."},
    )
    engine_capacity: int = field(
        default=256, metadata={"help": "Sessions that the embedded engine samples at once."}
    )
    engine_urls: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Base URLs of running vLLM servers that sample the actions; empty: the "
            "embedded engine."
        },
    )
    max_staleness: int | None = field(
        default=None,
        metadata={
            "help": "Rollouts whose weights are more generations old than this are dropped; None: "
            "none is, the sampler's ratio corrects them."
        },
    )
    generate_ahead: bool = field(
        default=False,
        metadata={
            "help": "Play the next generation on the vLLM servers while the optimiser works, one "
            "generation behind; sampler_correction corrects for it."
        },
    )
    min_signal_share: float = field(
        default=0.02,
        metadata={
            "help": "Training stops when the share of groups with signal stays below this for "
            "`min_signal_patience` generations."
        },
    )
    min_signal_patience: int = field(default=20, metadata={"help": "See min_signal_share."})
    eval_rollouts: int = field(default=1, metadata={"help": "Rollouts of an evaluation task."})
    eval_temperature: float = field(default=1.0, metadata={"help": "0 is greedy."})
    max_bad_rows: int = field(
        default=100,
        metadata={
            "help": "Rows of a streamed training set that are left out because they name no task; "
            "one more ends training. Other sets are checked before training starts."
        },
    )
    allow_imports: bool | list[str] = field(
        default=False,
        metadata={"help": "Whether dataset rows may name unregistered dotted paths."},
    )
    allow_paths: list[str] = field(
        default_factory=list,
        metadata={"help": "Directories under which dataset rows may name files, such as games."},
    )
    allow_truncated_sampling: bool = field(
        default=False,
        metadata={"help": "Train with top-p or top-k although that biases the ratio."},
    )

    def __post_init__(self) -> None:
        if getattr(self, "bf16", None) is None and not self.fp16:
            self.bf16: bool = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        if self.remove_unused_columns:
            raise ValueError("remove_unused_columns must be False: rows carry the task")
        # Our evaluation plays tasks itself; TRL's divisibility rule must not apply to it.
        self.num_generations_eval = 1
        choose_metric(self)
        super().__post_init__()
        choose_mode(self)
        self._check_choices()
        self._check_unsupported()

    def _check_choices(self) -> None:
        self._check_one_of("loss_type", tuple(NORMALISERS))
        self._check_one_of("zero_signal_groups", ("keep", "drop", "resample"))
        self._check_one_of("train_on", ("rollout", "steps"))
        self._check_one_of("ratio_scope", SCOPES)
        self._check_one_of("sampler_correction", ("truncate", "none"))
        self._check_one_of("scale_step_rewards", ("none", "batch"))
        if self.steps_per_generation % self.gradient_accumulation_steps:
            raise ValueError(
                f"steps_per_generation ({self.steps_per_generation}) must be a multiple of "
                f"gradient_accumulation_steps ({self.gradient_accumulation_steps}): an optimiser "
                "step must not span two generations"
            )
        if (self.top_p < 1.0 or self.top_k > 0) and not self.allow_truncated_sampling:
            raise ValueError(
                "top_p and top_k bias the importance ratio; leave them off, or set "
                "allow_truncated_sampling=True"
            )
        if self.loss_type == "dr_grpo" and self.norm_tokens is None:
            raise ValueError("loss_type 'dr_grpo' needs loss_norm_tokens or max_rollout_tokens")
        if self.temperature <= 0:
            raise ValueError(f"temperature must be positive in training, got {self.temperature}")
        self._check_staleness()
        check_estimator(self.advantage_estimator, self.estimator_options, self.allow_imports)

    def _check_staleness(self) -> None:
        if self.max_staleness is not None and self.max_staleness < 0:
            raise ValueError(f"max_staleness must be at least 0, got {self.max_staleness}")
        if self.max_bad_rows < 0:
            raise ValueError(f"max_bad_rows must be at least 0, got {self.max_bad_rows}")
        if not self.generate_ahead:
            return
        if self.sampler_correction == "none":
            raise ValueError("generate_ahead needs sampler_correction: rollouts are not on-policy")
        if self.max_staleness == 0:
            raise ValueError("generate_ahead plays one generation behind, max_staleness=0 drops it")

    def _check_one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in allowed:
            why = " (it is normalised per micro-batch)" if value == "bnpo" else ""
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}{why}")

    def _check_unsupported(self) -> None:
        for name, allowed in _UNSUPPORTED.items():
            if getattr(self, name, allowed) != allowed:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not supported here; leave it {allowed!r}"
                )

    @property
    def estimator_options(self) -> dict[str, Any]:
        """`advantage_options`, with TRL's `scale_rewards` for the estimator that it belongs to."""
        if self.advantage_estimator == "grpo":
            return {"scale_rewards": self.scale_rewards, **self.advantage_options}
        return self.advantage_options

    @property
    def norm_tokens(self) -> int | None:
        """Denominator of "dr_grpo", in tokens."""
        return self.loss_norm_tokens or self.max_rollout_tokens

    @property
    def steps_per_window(self) -> int:
        """Optimiser steps that one generation feeds; checkpoints fall on their multiples."""
        windows: int = self.steps_per_generation // self.gradient_accumulation_steps
        return windows * int(self.num_iterations)
