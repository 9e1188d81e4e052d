"""What becomes of the settings that TRL's GRPOConfig and its TrainingArguments have.

They are TRL's and work as in TRL, but for those that are listed here: a refused one may only keep
its default, because it would be ignored in silence, or train something else than asked; one that
belongs to others is refused without them. docs/settings.md is made of these tables; the settings
that have no effect stand in scripts/settings_page.py.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from trl import GRPOConfig

from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.settings import OwnSettings
from agentsgym.types.settings import Count, NotNegative, Positive, Seed, Share
from agentsgym.types.text import docs_page

_NOT_HERE = (
    "the embedded engine batches continuously and keeps a cache of its own (engine.capacity)"
)
_LIGER = (
    "it would exchange layers after the embedded engine has checked them; "
    'set model_init_kwargs={"use_kernels": True}'
)
_NOT_SAMPLED = (
    "it changes the distribution that is sampled but not the one that is trained; lower "
    "temperature instead"
)
_ENTROPY = "the bonus keeps its coefficient: entropy_coef"
_REWARD = "there is one reward, the environment's; weigh its parts in _calculate_reward"
_PRECISION = (
    "an evaluation plays with the weights as they are trained; load the model in another "
    'dtype: model_init_kwargs={"dtype": "bfloat16"}'
)
_VLLM = "start vLLM servers, or let the run do so: engine.urls, engine.launch"

REFUSED: dict[str, str] = {
    "use_liger_kernel": _LIGER,
    "liger_kernel_config": _LIGER,
    "remove_unused_columns": "rows carry the task; leave it False",
    "train_sampling_strategy": "tasks are drawn in groups; shuffle_dataset=False keeps the "
    "dataset's order",
    "max_completion_length": "set max_action_tokens, the cap of one action",
    "num_generations_eval": "set eval_rollouts",
    "generation_kwargs": "set temperature, top_p, top_k, max_action_tokens or stop_strings",
    "min_p": _NOT_SAMPLED,
    "repetition_penalty": _NOT_SAMPLED,
    "cache_implementation": _NOT_HERE,
    "use_transformers_continuous_batching": _NOT_HERE,
    "use_transformers_paged": _NOT_HERE,
    "transformers_continuous_batching_config": _NOT_HERE,
    "max_tool_calling_iterations": 'set env_config["max_steps_per_episode"]',
    "use_vllm": _VLLM,
    "vllm_importance_sampling_correction": 'set sampler_correction="none" to leave it out',
    "vllm_importance_sampling_mode": 'ours is "token_truncate", of every engine '
    "(sampler_correction, sampler_cap)",
    "vllm_importance_sampling_clip_max": "set sampler_cap",
    "vllm_importance_sampling_cap": "set sampler_cap",
    "vllm_importance_sampling_clip_min": "the sampler's ratio is capped above only: sampler_cap",
    "importance_sampling_level": 'set ratio_scope="rollout" for "sequence"',
    "mask_truncated_completions": "set train_truncated_actions=False",
    "off_policy_mask_threshold": "set off_policy_masks",
    "top_entropy_quantile": "every agent token is trained; see entropy_coef",
    "use_adaptive_entropy": _ENTROPY,
    "entropy_coef_min": _ENTROPY,
    "entropy_coef_max": _ENTROPY,
    "entropy_coef_delta": _ENTROPY,
    "entropy_target": _ENTROPY,
    "reward_weights": _REWARD,
    "multi_objective_aggregation": _REWARD,
    "router_aux_loss_coef": "the auxiliary loss of experts counts every token of a row, also those "
    "that rows share and that are read once",
    "log_completions": "`agentsgym view` shows every rollout, and rollout_sink receives them",
    "sync_ref_model": "the reference is the model before training; resume with another one",
    "label_smoothing_factor": "the loss has no labels to smooth; see entropy_coef",
    "auto_find_batch_size": "a smaller batch would break groups apart; lower "
    "max_tokens_per_forward, which bounds memory",
    "bf16_full_eval": _PRECISION,
    "fp16_full_eval": _PRECISION,
    "enable_jit_checkpoint": "a checkpoint is made at the end of a generation, a signal comes at "
    "any time; set save_steps",
    "parallelism_config": f"never tried; see {docs_page('Several GPUs and machines')}",
}
"""What is refused, and what to set instead."""


class Condition(NamedTuple):
    """A setting that has an effect only where `holds` is true of a configuration; `where` says the
    same in words."""

    name: str
    where: str
    holds: Callable[[Any], bool]


def _with_losses(name: str) -> Condition:
    """The losses that read a setting. Those with `epsilon_high` alone have `epsilon` in its place
    if it is None."""
    needed = "epsilon_high" if name == "epsilon" else name
    readers = [
        loss.name
        for loss in LOSSES.values()
        if needed in loss.settings or (name == _NORM and loss.needs_norm_tokens)
    ]
    quoted = ", ".join(f'"{reader}"' for reader in readers)
    return Condition(name, f"with loss_type {quoted}", lambda c: c.loss_type in readers)


def _with(name: str, other: str, value: str) -> Condition:
    return Condition(name, f'with {other} "{value}"', lambda c: getattr(c, other) == value)


_NORM = "loss_norm_tokens"
_OF_LOSSES = dict.fromkeys(name for loss in LOSSES.values() for name in loss.settings)

CONDITIONS = (
    *map(_with_losses, [*_OF_LOSSES, _NORM]),
    _with("sampler_cap", "sampler_correction", "truncate"),
    _with("max_resample_rounds", "zero_signal_groups", "resample"),
    _with("replay_max_age", "zero_signal_groups", "replay"),
    Condition(
        "min_signal_patience", "with min_signal_share above 0", lambda c: c.min_signal_share > 0
    ),
    *(
        Condition(name, "with teacher_model", lambda c: c.teacher_model is not None)
        for name in ("teacher_key_env", "distillation", "distillation_weight", "policy_gradient")
    ),
    Condition("branch_where", "with branches above 0", lambda c: c.branches > 0),
    Condition("ray", "with ray.workers", lambda c: c.ray.workers > 0),
)
"""Settings of ours and of the losses that are refused without what they belong to."""

BELONGS_TO = {c.name: c.where for c in CONDITIONS}
"""Each of these settings, and where it has an effect."""


# -- types and checks ------------------------------------------------------------------------------


def _ranges(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


# The number of tokens, rollouts and the like has a range; other numbers are TRL's to check.
_RANGES: dict[str, Any] = {
    **_ranges(
        Count | None,
        "per_device_train_batch_size gradient_accumulation_steps generation_batch_size "
        "steps_per_generation num_iterations ref_model_sync_steps dataloader_prefetch_factor "
        "torch_empty_cache_steps num_completions_to_print ddp_timeout ddp_bucket_cap_mb",
    ),
    **_ranges(
        NotNegative | None,
        "learning_rate weight_decay adam_epsilon max_grad_norm warmup_steps beta epsilon "
        "epsilon_high logging_steps eval_steps eval_delay save_steps "
        "neftune_noise_alpha",
    ),
    **_ranges(
        Positive | None,
        "temperature delta sapo_temperature_neg sapo_temperature_pos num_train_epochs",
    ),
    **_ranges(Share, "ref_model_mixup_alpha"),
    **_ranges(Annotated[float, Field(gt=0, le=1)], "top_p"),
    **_ranges(Annotated[float, Field(ge=0, lt=1)], "adam_beta1 adam_beta2"),
    **_ranges(Annotated[int, Field(ge=0)], "top_k dataloader_num_workers"),
    **_ranges(Seed | None, "seed data_seed"),
    **_ranges(Annotated[int, Field(ge=2)], "num_generations"),
    **_ranges(Annotated[int, Field(ge=-1)], "max_steps"),
    **_ranges(Literal[*LOSSES], "loss_type"),
    **_ranges(Literal["group", "batch", "none", True, False], "scale_rewards"),
}
_PLAIN = {bool, int, float, str, type(None)}
_TRL_FIELDS = {each.name: each for each in dataclasses.fields(GRPOConfig)}


def trl_types() -> dict[str, Any]:
    """The types of TRL's fields: those with a range here, and plain ones as TRL declares them."""
    hints = typing.get_type_hints(GRPOConfig)
    types = {}
    for name in _TRL_FIELDS.keys() - OwnSettings.model_fields.keys():
        plain = {*(typing.get_args(hints[name]) or (hints[name],))} <= _PLAIN
        types[name] = hints[name] if plain and name != "fsdp" else Any  # a text, too
    return types | {name: kind for name, kind in _RANGES.items() if name in _TRL_FIELDS}


def default_of(field: Any) -> Any:
    """The default of a dataclass field."""
    missing = field.default_factory is dataclasses.MISSING
    return field.default if missing else field.default_factory()


def refuse_settings(config: Any) -> None:
    """Raise ValueError for a refused setting that was changed, with what to set instead."""
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name, None)
        why = REFUSED.get(name) or (_VLLM if name.startswith("vllm_") else None)
        if why and value != default_of(field):
            raise ValueError(f"{name}={value!r} is not supported here: {why}")


def refuse_without_effect(config: Any) -> None:
    """Raise ValueError for a setting that was changed where its condition is false."""
    fields = {field.name: field for field in dataclasses.fields(config)}
    for name, where, holds in CONDITIONS:
        if name in fields and not holds(config):
            value, default = getattr(config, name), default_of(fields[name])
            if value != default:
                raise ValueError(
                    f"{name}={value!r} has an effect only {where}; leave it at its default, "
                    f"{default!r}"
                )


_REFUSED_ARGUMENTS = {
    "reward_funcs": "rewards come from the environments (_step_episode, _calculate_reward)",
    "reward_processing_classes": "rewards come from the environments, not from reward models",
    "tools": "what an agent may do is in its environment's prompts and _step_episode",
    "rollout_func": "rollouts are played by the environments that the dataset's rows name",
    "environment_factory": "the dataset's rows name their environments (env_class_path)",
    "compute_metrics": "an environment hands its own figures over in info['metrics'] of a step",
}


def refuse_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise TypeError for an argument of TRL's trainer that has another place here."""
    for name, why in _REFUSED_ARGUMENTS.items():
        if name in arguments:
            raise TypeError(f"GRPOEnvTrainer takes no {name}: {why}")
