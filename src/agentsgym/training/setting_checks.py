"""Checks of settings against each other.

A setting that was changed and has an effect only together with others is either refused where they
are missing, because whoever set it expects another training than the one that would run, or named
in a note, because it is a detail of something that was switched off. docs/settings.md says for each
of them what it belongs to.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentsgym.credit import ESTIMATORS, check_estimator, find_estimator
from agentsgym.generation.factory import choose
from agentsgym.training.loss.losses import LOSSES, REFUSED_LOSSES
from agentsgym.training.trl_settings import default_of

# Optimizers that want something else of every backward pass or evaluation than we do.
_OTHER_OPTIMIZERS = ("lomo", "adalomo", "schedule_free")


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
    _condition("ray", "with ray.workers", lambda c: c.ray.workers > 0),
)
"""What is refused without what it belongs to."""

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


def check_combinations(config: Any) -> None:
    """Raise ValueError for settings that contradict each other, and for one that has no effect with
    the others; `config` is a GRPOEnvConfig."""
    _check_one_of("loss_type", config.loss_type, LOSSES)
    _check_one_of("scale_rewards", config.scale_rewards, ("group", "batch", "none"))
    _check_generation(config)
    if LOSSES[config.loss_type].weights.needs_norm_tokens and config.norm_tokens is None:
        raise ValueError(
            f"loss_type {config.loss_type!r} needs loss_norm_tokens or max_rollout_tokens"
        )
    if config.max_staleness and config.sampler_correction == "none":
        raise ValueError("max_staleness needs sampler_correction: rollouts are not on-policy")
    _check_estimator(config)
    _check_engine(config)
    _check_accelerator(config)
    for problem, default in _without_effect(config, REFUSED):
        raise ValueError(f"{problem}; leave it at its default, {default!r}")


def _check_one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    if value not in allowed:
        why = f" ({REFUSED_LOSSES[value]})" if value in REFUSED_LOSSES else ""
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}{why}")


def _check_generation(config: Any) -> None:
    if config.steps_per_generation % config.gradient_accumulation_steps:
        raise ValueError(
            f"steps_per_generation ({config.steps_per_generation}) must be a multiple of "
            f"gradient_accumulation_steps ({config.gradient_accumulation_steps}): an optimizer "
            "step must not span two generations"
        )
    if (config.top_p < 1.0 or config.top_k > 0) and not config.allow_truncated_sampling:
        raise ValueError(
            "top_p and top_k bias the importance ratio; leave them off, or set "
            "allow_truncated_sampling=True"
        )


def _check_estimator(config: Any) -> None:
    name, scaling = config.advantage_estimator, config.scale_rewards
    check_estimator(name, config.estimator_options)
    _check_probabilities(config)
    if scaling == "group":
        return
    if not config.estimator_scales:
        takers = ", ".join(repr(e.name) for e in ESTIMATORS.values() if e.takes_scale_rewards)
        raise ValueError(
            f"scale_rewards belongs to the estimator {takers}, not {name!r}; set advantage_options"
        )
    own = config.advantage_options.get("scale_rewards", scaling)
    if own != scaling:
        raise ValueError(
            f"scale_rewards={scaling!r} and advantage_options['scale_rewards']={own!r} mean the "
            "same; set one of them"
        )


def _check_probabilities(config: Any) -> None:
    """An estimator that reads the policy's probabilities needs those that actions had when they
    were sampled."""
    name = config.advantage_estimator
    if not find_estimator(name).reads_choices:
        return
    others = {
        "max_staleness": config.max_staleness > 0,
        "top_p": config.top_p < 1.0,
        "top_k": config.top_k > 0,
    }
    for setting, changed in others.items():
        if changed:
            raise ValueError(
                f"advantage_estimator {name!r} reads the current policy's probabilities, and with "
                f"{setting} actions are sampled with others; it would be biased"
            )


def _check_engine(config: Any) -> None:
    entry = choose(config.engine, training=True)
    if config.ray.workers and not config.engine.urls:
        raise ValueError(
            "ray.workers need servers that their machines reach, which you start yourself and name "
            f"in engine.urls; engine {entry.name!r} is on this machine only"
        )


def _check_accelerator(config: Any) -> None:
    if str(getattr(config.optim, "value", config.optim)).startswith(_OTHER_OPTIMIZERS):
        raise ValueError(f"optim={config.optim.value!r} is not supported here; use another one")
    options = config.accelerator_config
    bad = [name for name in ("split_batches", "dispatch_batches") if getattr(options, name)]
    if "num_steps" in (options.gradient_accumulation_kwargs or {}):
        bad.append("num_steps")
    if bad:
        raise ValueError(
            f"accelerator_config: {bad[0]} is not supported here, it breaks groups apart"
        )


def notes(config: Any) -> list[str]:
    """A sentence for each setting of `IDLE` that was changed and has no effect."""
    return [f"{problem}, so here it has none" for problem, _ in _without_effect(config, IDLE)]


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
