"""An estimator's record: its function, its inputs, its options, and the bias of its gradient."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One formula of an estimator, chosen by `options`.

    `error` is the relative error of the expected gradient, and `turned` the error that remains
    after the best rescaling: medians over the enumerable processes of tests/credit/test_bias.py,
    which checks an error of 0.0 to 1e-9. None: not measured.
    """

    options: Mapping[str, Any]
    error: float | None
    turned: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """A complete advantage estimator.

    `assign` takes a `StepTable` and returns one float per step, shape (N,); with `per="token"` it
    takes a `Rollout` and returns for each row one float per token, shape (T,). Its keyword-only
    arguments are the estimator's options. `help` says what it rewards. With `takes_scale_rewards`
    the trainer's `scale_rewards` is its option of that name; with `reads_choices` the trainer fills
    the column `choices`, with `reads_values` it trains a critic and fills the column `value`,
    either for a forward pass; with `over_batch` it compares steps of different groups, and gets
    those of all processes; with `reads_branches` it knows branches and their trunks.
    """

    name: str
    help: str
    assign: Callable[..., Any]
    variants: tuple[Variant, ...]
    per: Literal["step", "token"] = "step"
    takes_scale_rewards: bool = False
    reads_choices: bool = False
    reads_values: bool = False
    over_batch: bool = False
    reads_branches: bool = False

    def __post_init__(self) -> None:
        if self.variants and len(self.options) + 1 != len(self._parameters()):
            raise TypeError(f"options of the estimator {self.name!r} must be keyword-only")

    def __call__(self, subject: Any, **options: Any) -> Any:
        return self.assign(subject, **options)

    @property
    def reads_policy(self) -> bool:
        """Whether it needs more than recorded rollouts."""
        return self.reads_choices or self.reads_values

    @property
    def options(self) -> tuple[str, ...]:
        """Names of its options."""
        return tuple(p.name for p in self._parameters() if p.kind is p.KEYWORD_ONLY)

    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.assign).parameters.values())
