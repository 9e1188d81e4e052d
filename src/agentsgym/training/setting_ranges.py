"""The allowed values of settings: type, finite numbers only, and range."""

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from os import PathLike
from typing import Any

_PLAIN = {bool, int, float, type(None)}
# TrainingArguments accepts them although its type hints do not say so.
_BEYOND_HINTS = {"fsdp": frozenset({bool})}


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `least` to `most`; an open end excludes its own number."""

    least: float = -math.inf
    most: float = math.inf
    open_least: bool = False
    open_most: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.least if self.open_least else value >= self.least
        below = value < self.most if self.open_most else value <= self.most
        return above and below

    def __str__(self) -> str:
        parts = []
        if self.least > -math.inf:
            parts.append(f"{'above' if self.open_least else 'of at least'} {self.least:.15g}")
        if self.most < math.inf:
            parts.append(f"{'below' if self.open_most else 'at most'} {self.most:.15g}")
        return " and ".join(parts)


_POSITIVE = Range(0, open_least=True)
_NOT_NEGATIVE = Range(0)
_ONE_OR_MORE = Range(1)
_SHARE = Range(0, 1)


def _ranges(range_: Range, names: str) -> dict[str, Range]:
    return dict.fromkeys(names.split(), range_)


RANGES: dict[str, Range] = {
    **_ranges(
        _ONE_OR_MORE,
        "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps "
        "generation_batch_size steps_per_generation num_iterations num_generations_eval "
        "max_completion_length max_action_tokens max_rollout_tokens max_tokens_per_forward "
        "loss_norm_tokens engine_capacity min_signal_patience eval_rollouts ref_model_sync_steps "
        "vllm_tensor_parallel_size vllm_max_model_length dataloader_prefetch_factor ddp_timeout "
        "torch_empty_cache_steps num_completions_to_print ddp_bucket_cap_mb pad_to_multiple_of",
    ),
    **_ranges(
        _NOT_NEGATIVE,
        "learning_rate weight_decay adam_epsilon max_grad_norm warmup_steps beta epsilon "
        "epsilon_high eval_temperature top_k max_bad_rows max_resample_rounds max_staleness "
        "logging_steps eval_steps eval_delay save_steps router_aux_loss_coef neftune_noise_alpha "
        "dataloader_num_workers engine_launch rollout_workers token_records",
    ),
    **_ranges(
        _POSITIVE,
        "temperature sampler_cap delta sapo_temperature_neg sapo_temperature_pos num_train_epochs "
        "vllm_server_timeout",
    ),
    **_ranges(_SHARE, "min_signal_share ref_model_mixup_alpha"),
    **_ranges(Range(0, 1, open_least=True), "top_p vllm_gpu_memory_utilization"),
    **_ranges(Range(0, 1, open_most=True), "adam_beta1 adam_beta2"),
    **_ranges(Range(0, 2**32 - 1), "seed data_seed"),
    **_ranges(Range(0, 65535), "vllm_server_port vllm_group_port"),
    **_ranges(Range(2), "num_generations"),
    **_ranges(Range(-1), "max_steps"),
}
"""The ranges of numeric settings."""


def check_fields(config: Any) -> None:
    """Raise ValueError for a field whose value has another type than its hint, is not a finite
    number, or is outside its range; the message names the field and the allowed values."""
    hints = _hints(config.__class__)
    for field in dataclasses.fields(config):
        if field.init:
            check_value(field.name, getattr(config, field.name), hints[field.name], field.default)


def check_value(name: str, value: Any, hint: Any, default: Any = None) -> None:
    """Check one field; None is allowed if the hint or the default says so."""
    if isinstance(value, Real) and not math.isfinite(value):
        raise ValueError(f"{name} must be {_allowed(name, hint)}, got {value!r}")
    kinds = _kinds(hint) | _BEYOND_HINTS.get(name, frozenset())
    if value is None:
        known = kinds <= _PLAIN | {str} and type(None) not in kinds
        if default is not None and (known or name == "num_generations"):
            raise ValueError(f"{name} must be {_allowed(name, hint)}, got None")
    elif not _fits(value, kinds) or not _in_range(name, value):
        hint_on_text = "; YAML reads 1e-5 as text, 1.0e-5 as a number" if _number(value) else ""
        raise ValueError(f"{name} must be {_allowed(name, hint)}, got {value!r}{hint_on_text}")


@cache
def _hints(config: Any) -> dict[str, Any]:
    return typing.get_type_hints(config)


def _kinds(hint: Any) -> frozenset[Any]:
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return frozenset(typing.get_args(hint) if union else [hint])


def _fits(value: Any, kinds: frozenset[Any]) -> bool:
    if not kinds <= _PLAIN | {str}:
        return True  # lists, dicts and enumerations are checked by the code that uses them
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, Integral):
        return int in kinds or float in kinds
    if isinstance(value, Real):
        return float in kinds
    return isinstance(value, str | PathLike) and str in kinds


def _in_range(name: str, value: Any) -> bool:
    number = isinstance(value, Real) and not isinstance(value, bool)
    return not number or name not in RANGES or value in RANGES[name]


def _number(value: Any) -> bool:
    """Whether a text looks like a number."""
    if not isinstance(value, str):
        return False
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _allowed(name: str, hint: Any) -> str:
    kinds = _kinds(hint)
    if not kinds & {int, float}:
        return "true or false" if bool in kinds else "a text"
    kind = "a finite number" if float in kinds else "a whole number"
    range_ = f" {RANGES[name]}" if name in RANGES else ""
    return kind + range_ + (", or none" if type(None) in kinds else "")
