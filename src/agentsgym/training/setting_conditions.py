"""Settings that have an effect only together with others.

Where the others are missing, a setting that was changed is either refused, because whoever set it
expects another training than the one that would run, or named in a note, because it is a detail of
something that was switched off. docs/settings.md says for each of them what it belongs to.
"""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentsgym.training.loss.losses import LOSSES


@dataclass(frozen=True, slots=True)
class Condition:
    """Settings that have an effect only where `holds` is true of a configuration; `where` says the
    same in words."""

    names: tuple[str, ...]
    where: str
    holds: Callable[[Any], bool]


def _condition(names: str, where: str, holds: Callable[[Any], bool]) -> Condition:
    return Condition(tuple(names.split()), where, holds)


def _with_losses(name: str, readers: Iterable[str]) -> Condition:
    readers = tuple(readers)
    quoted = ", ".join(f'"{reader}"' for reader in readers)
    return Condition((name,), f"with loss_type {quoted}", lambda c: c.loss_type in readers)


def _readers(name: str) -> list[str]:
    return [loss.name for loss in LOSSES.values() if name in loss.settings]


def _of_losses() -> list[Condition]:
    """The settings that formulas and weights of losses read."""
    names = dict.fromkeys(name for loss in LOSSES.values() for name in loss.settings)
    norm = [loss.name for loss in LOSSES.values() if loss.weights.needs_norm_tokens]
    plain = [_with_losses(name, _readers(name)) for name in names if name != "epsilon"]
    return [_of_epsilon(), *plain, _with_losses("loss_norm_tokens", norm)]


def _of_epsilon() -> Condition:
    """Losses that read `epsilon_high` alone have `epsilon` in its place if it is None."""
    own, high = _readers("epsilon"), _readers("epsilon_high")
    instead = [name for name in high if name not in own]
    where = _with_losses("epsilon", own).where
    quoted = ", ".join(f'"{name}"' for name in instead)
    return Condition(
        ("epsilon",),
        f"{where}, and with {quoted} if epsilon_high is None",
        lambda c: c.loss_type in own or (c.loss_type in instead and c.epsilon_high is None),
    )


REFUSED = (
    *_of_losses(),
    _condition("rollout_worker_resources", "with rollout_workers", lambda c: c.rollout_workers > 0),
    _condition(
        "vllm_mode vllm_structured_outputs_regex",
        "with use_vllm, TRL's own vLLM",
        lambda c: c.use_vllm,
    ),
    _condition(
        "vllm_model_impl vllm_enable_sleep_mode vllm_gpu_memory_utilization "
        "vllm_max_model_length vllm_tensor_parallel_size",
        'with use_vllm and vllm_mode "colocate"',
        lambda c: c.use_vllm and c.vllm_mode == "colocate",
    ),
    _condition(
        "vllm_server_base_url vllm_server_timeout vllm_group_port",
        'with use_vllm and vllm_mode "server"',
        lambda c: c.use_vllm and c.vllm_mode == "server",
    ),
    _condition(
        "vllm_server_host vllm_server_port",
        'with use_vllm and vllm_mode "server", without vllm_server_base_url',
        lambda c: c.use_vllm and c.vllm_mode == "server" and c.vllm_server_base_url is None,
    ),
)
"""What is refused."""

IDLE = (
    _condition(
        "ratio_scope",
        "with a loss_type that does not take the ratio of the whole rollout, or with beta and "
        "use_bias_correction_kl",
        lambda c: (
            not LOSSES[c.loss_type].needs_rollout_ratio
            or (c.beta != 0.0 and c.use_bias_correction_kl)
        ),
    ),
    _condition(
        "sampler_cap",
        'with sampler_correction "truncate"',
        lambda c: c.sampler_correction != "none",
    ),
    _condition(
        "max_resample_rounds",
        'with zero_signal_groups "resample"',
        lambda c: c.zero_signal_groups == "resample",
    ),
    _condition(
        "min_signal_patience", "with min_signal_share above 0", lambda c: c.min_signal_share > 0
    ),
    _condition("use_bias_correction_kl", "with beta above 0", lambda c: c.beta != 0.0),
    _condition(
        "ref_model_mixup_alpha ref_model_sync_steps",
        "with sync_ref_model",
        lambda c: c.sync_ref_model,
    ),
    _condition(
        "num_completions_to_print log_unique_prompts",
        "with log_completions",
        lambda c: c.log_completions,
    ),
    _condition("eval_steps", 'with eval_strategy "steps"', lambda c: c.eval_strategy == "steps"),
    _condition(
        "eval_delay", 'with eval_strategy "steps" or "epoch"', lambda c: c.eval_strategy != "no"
    ),
    _condition("save_steps", 'with save_strategy "steps"', lambda c: c.save_strategy == "steps"),
    _condition(
        "hub_model_id hub_strategy hub_always_push hub_revision",
        "with push_to_hub",
        lambda c: c.push_to_hub,
    ),
    _condition(
        "activation_checkpointing_kwargs gradient_checkpointing_kwargs",
        "with activation_checkpointing or gradient_checkpointing",
        lambda c: bool(
            getattr(c, "activation_checkpointing", None) or getattr(c, "gradient_checkpointing", 0)
        ),
    ),
)
"""What is only noted: it stays as it is while the thing that it belongs to is switched off."""

BELONGS_TO = {name: c.where for c in (*REFUSED, *IDLE) for name in c.names}
"""Each of these settings, and where it has an effect."""


def refuse_without_effect(config: Any) -> None:
    """Raise ValueError for a setting of `REFUSED` that was changed and has no effect."""
    for problem, default in _without_effect(config, REFUSED):
        raise ValueError(f"{problem}; leave it at its default, {default!r}")


def notes(config: Any) -> list[str]:
    """A sentence for each setting of `IDLE` that was changed and has no effect."""
    return [f"{problem}, so here it has none" for problem, _ in _without_effect(config, IDLE)]


def default_of(field: Any) -> Any:
    """The default of a dataclass field."""
    missing = field.default_factory is dataclasses.MISSING
    return field.default if missing else field.default_factory()


def _without_effect(config: Any, conditions: Iterable[Condition]) -> Iterable[tuple[str, Any]]:
    """A sentence and the default for each setting that was changed where its condition is false."""
    fields = {field.name: field for field in dataclasses.fields(config)}
    for condition in conditions:
        if condition.holds(config):
            continue
        for name in filter(fields.__contains__, condition.names):  # versions differ in fields
            value, default = getattr(config, name), default_of(fields[name])
            if value != default:
                shown = value.value if isinstance(value, Enum) else value
                yield f"{name}={shown!r} has an effect only {condition.where}", default
