"""Checks of settings against a list of choices and against each other."""

from collections.abc import Collection
from typing import Any

from agentsgym.credit import ESTIMATORS, check_estimator, find_estimator
from agentsgym.generation.factory import TRAINING, choose
from agentsgym.training import setting_parsers as given
from agentsgym.training.chat_templates import CHOICES
from agentsgym.training.loss.losses import LOSSES, REFUSED_LOSSES
from agentsgym.training.loss.ratios import RATIO_SCOPES
from agentsgym.training.setting_conditions import refuse_without_effect

# Optimizers that want something else of every backward pass or evaluation than we do.
_OTHER_OPTIMIZERS = ("lomo", "adalomo", "schedule_free")

_CHOICES: dict[str, Collection[str]] = {
    "zero_signal_groups": ("keep", "drop", "resample"),
    "train_on": ("rollout", "steps"),
    "chat_template": CHOICES,
    "ratio_scope": RATIO_SCOPES,
    "sampler_correction": ("truncate", "none"),
    "scale_rewards": ("group", "batch", "none"),
    "scale_step_rewards": ("none", "batch"),
    "vllm_mode": ("colocate", "server"),
}


def check_combinations(config: Any) -> None:
    """Raise ValueError for a choice that there is not, for settings that contradict each other, and
    for one that has no effect with the others; `config` is a GRPOEnvConfig."""
    _check_one_of("loss_type", config.loss_type, LOSSES)
    for name, allowed in _CHOICES.items():
        _check_one_of(name, getattr(config, name), allowed)
    _check_generation(config)
    if LOSSES[config.loss_type].weights.needs_norm_tokens and config.norm_tokens is None:
        raise ValueError(
            f"loss_type {config.loss_type!r} needs loss_norm_tokens or max_rollout_tokens"
        )
    _check_staleness(config)
    _check_estimator(config)
    _check_engine(config)
    _check_accelerator(config)
    refuse_without_effect(config)


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


def _check_staleness(config: Any) -> None:
    if config.max_staleness and config.sampler_correction == "none":
        raise ValueError(
            f"max_staleness={config.max_staleness} needs sampler_correction: rollouts are not "
            "on-policy"
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
    own = given.mapping("advantage_options", config.advantage_options).get("scale_rewards", scaling)
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
    if config.engine_urls and config.use_vllm:
        raise ValueError("engine_urls and use_vllm name two engines; set one of them")
    entry = choose(config.engine_settings, TRAINING)
    if config.rollout_workers and not entry.elsewhere:
        raise ValueError(
            f"rollout_workers need servers that their machines reach (engine_urls); engine "
            f"{entry.name!r} is reached from this process only"
        )
    if config.rollout_workers and config.engine_launch:
        raise ValueError(
            "rollout_workers need servers that their machines reach, and those of engine_launch "
            "listen on this machine only; start them yourself and name them in engine_urls"
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
