"""The settings of supervised training on games."""

import math
from dataclasses import dataclass

ADAPTER_RATE, WEIGHTS_RATE = 2e-4, 2e-5


@dataclass(frozen=True, slots=True)
class SupervisedConfig:
    """The settings of supervised training on games.

    Args:
        epochs: passes over the games.
        max_steps: limit on the number of updates; None: only `epochs` limits them.
        batch_size: rows per update.
        max_tokens_per_forward: padded tokens of a forward pass; it bounds memory, not the result.
        learning_rate: AdamW's, which rises over the first `warmup_share` of the updates and then
            falls linearly to 0; None: 2e-5, for adapters 2e-4.
        warmup_share: share of the updates with a rising learning rate.
        weight_decay: AdamW's; biases and norms have none.
        adam_beta2: AdamW's.
        max_grad_norm: the gradient is scaled down to this norm.
        held_out_share: share of the tasks whose games are only used for the held-out loss.
        eval_steps: updates between two computations of the held-out loss; None: once per epoch. A
            checkpoint is saved each time.
        patience: training ends after this number of held-out losses without a new lowest one.
        seed: seed of the order of the games and of their split.
    """

    epochs: int = 3
    max_steps: int | None = None
    batch_size: int = 16
    max_tokens_per_forward: int = 4096
    learning_rate: float | None = None
    warmup_share: float = 0.05
    weight_decay: float = 0.0
    adam_beta2: float = 0.999
    max_grad_norm: float = 1.0
    held_out_share: float = 0.1
    eval_steps: int | None = None
    patience: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "max_tokens_per_forward", "patience"):
            _check_count(name, getattr(self, name))
        for name in ("max_steps", "eval_steps"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name))
        for name in ("held_out_share", "warmup_share"):
            _check_number(name, getattr(self, name), 0.0, 1.0)
            if getattr(self, name) == 1.0:
                raise ValueError(f"{name} must be below 1, got 1")
        for name in ("weight_decay", "max_grad_norm"):
            _check_number(name, getattr(self, name), 0.0, math.inf)
        _check_number("adam_beta2", self.adam_beta2, 0.0, 1.0)
        if self.learning_rate is not None:
            _check_number("learning_rate", self.learning_rate, 0.0, math.inf)
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"seed must be a whole number from 0, got {self.seed!r}")

    def rate_at(self, step: int, steps: int, *, adapters: bool) -> float:
        """The learning rate of update number `step`, from 0, of `steps`."""
        top = self.learning_rate
        if top is None:
            top = ADAPTER_RATE if adapters else WEIGHTS_RATE
        rise = max(1, round(self.warmup_share * steps))
        return top * min((step + 1) / rise, (steps - step) / max(1, steps - rise))


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be a whole number from 1, got {value!r}")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        limits = f"from {low:g}" + ("" if math.isinf(high) else f" to {high:g}")
        raise ValueError(f"{name} must be a number {limits}, got {value!r}")
