"""From rollouts to one advantage per token: the public entry of credit assignment."""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from agentsgym.credit.estimator import Estimator
from agentsgym.credit.estimators import ESTIMATORS
from agentsgym.credit.table import StepTable, table_of
from agentsgym.types import ImportRefused, RolloutBatch, Row, import_path
from agentsgym.types.rows import Floats, Ints

StepKey = tuple[int, int]
"""(episode, step) within a rollout."""

RolloutKey = tuple[int, int]
"""(group, index in the group)."""


@dataclass(frozen=True, slots=True)
class StepAdvantages:
    """One number per step, with the step's key.

    All of shape (N,): `group`, `rollout` (its index in the group), `episode` and `step` int64,
    `value` float64.
    """

    group: Ints
    rollout: Ints
    episode: Ints
    step: Ints
    value: Floats

    @classmethod
    def of(cls, table: StepTable, value: Floats) -> "StepAdvantages":
        """The numbers of a table's steps, in table order."""
        owner = table.rollout
        return cls(table.group[owner], table.index[owner], table.episode, table.step, value)

    def by_rollout(self) -> dict[RolloutKey, dict[StepKey, float]]:
        """Rollout → step → number, without rollouts that have no steps."""
        rollouts: dict[RolloutKey, dict[StepKey, float]] = {}
        columns = (self.group, self.rollout, self.episode, self.step, self.value)
        for group, rollout, episode, step, value in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            rollouts.setdefault((group, rollout), {})[episode, step] = value
        return rollouts


def to_tokens(rows: Sequence[Row], steps: StepAdvantages) -> list[Floats]:
    """Each step's number, in full, on each of its agent tokens: per row float64 of shape (T,), 0
    elsewhere. Rows and steps are matched by their keys, so their order does not matter."""
    values = steps.by_rollout()
    return [_on_row(row, values.get((row.group, row.rollout), {})) for row in rows]


def _on_row(row: Row, values: dict[StepKey, float]) -> Floats:
    advantages = np.zeros(len(row.token_ids))
    for span in row.spans:
        advantages[span.start : span.stop] = values.get(span.key, 0.0)
    return advantages * row.agent_token_mask


def advantages(
    batch: RolloutBatch,
    estimator: str = "grpo",
    **options: Any,
) -> list[Floats]:
    """Advantages of every row of `batch.rows`: float64, as long as the row, 0 off agent tokens.

    `estimator` is a name in `ESTIMATORS` or the dotted path of a function from a `StepTable` to one
    float per step, which is imported. Raises ValueError for an
    unknown estimator, an option that it does not take, a reward that is not finite, a rollout that
    is in the batch twice, or a custom estimator's result of the wrong shape.
    """
    check_estimator(estimator, options)
    entry = find_estimator(estimator)
    if entry.per == "token":
        return [values for rollout in batch.rollouts for values in entry(rollout, **options)]
    table = table_of(batch.rollouts)
    return to_tokens(batch.rows, credit_steps(table, entry, **options))


def credit_steps(
    table: StepTable,
    estimator: str | Estimator,
    **options: Any,
) -> StepAdvantages:
    """One number per step of the table, with the steps' keys. Raises ValueError for an estimator
    of tokens."""
    estimator = find_estimator(estimator) if isinstance(estimator, str) else estimator
    if estimator.per != "step":
        raise ValueError(f"estimator {estimator.name!r} gives numbers to tokens, not to steps")
    with np.errstate(invalid="ignore"):  # what is not finite is refused below
        result = np.asarray(estimator(table, **options), np.float64)
    if result.shape != table.reward.shape or not np.isfinite(result).all():
        raise ValueError(
            f"estimator {estimator.name!r} must give {len(table.reward)} finite numbers, one per "
            f"step; it gave shape {result.shape}"
        )
    return StepAdvantages.of(table, result)


def find_estimator(name: str) -> Estimator:
    """The estimator of that name, or the function at that dotted path, which is imported: a name
    from data must be checked before. Raises ValueError if there is none."""
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    if "." not in name:
        known = ", ".join(sorted(ESTIMATORS))
        raise ValueError(f"unknown advantage estimator {name!r}; known: {known}")
    try:
        function = import_path(name, trust=True)
    except ImportRefused as error:
        raise ValueError(f"advantage estimator {name!r}: {error}") from error
    if isinstance(function, Estimator):
        return function
    if not _takes_a_table(function):
        raise ValueError(
            f"advantage estimator {name!r} is not a function of a step table: one argument, and "
            "options as keyword-only arguments"
        )
    return Estimator(name=name, help="", assign=function, variants=())


def _takes_a_table(function: Any) -> bool:
    """Whether it is written as an estimator is, so that no other function is called by a name."""
    if not inspect.isfunction(function):
        return False
    parameters = inspect.signature(function).parameters.values()
    return len([one for one in parameters if one.kind is not one.KEYWORD_ONLY]) == 1


# A discount above 1 would give distant rewards more weight than near ones.
_DISCOUNTS = ("gamma", "trial_gamma", "lam")


def check_estimator(name: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError for an unknown estimator, an option that it does not take, or a numeric
    option whose value is not a number, not finite, or (for a discount) outside [0, 1]."""
    estimator = find_estimator(name)
    allowed = estimator.options
    parameters = inspect.signature(estimator.assign).parameters
    for option, value in options.items():
        if option not in allowed:
            hint = "; an option is a keyword-only argument" if option in parameters else ""
            raise ValueError(
                f"estimator {name!r} takes no option {option!r}; "
                f"it takes {', '.join(allowed) or 'none'}{hint}"
            )
        number = isinstance(value, Real) and not isinstance(value, bool)
        if number and not math.isfinite(value):
            raise ValueError(f"option {option!r} of {name!r} must be finite, got {value}")
        if parameters[option].annotation is float and not number:
            raise ValueError(f"option {option!r} of {name!r} must be a number, got {value!r}")
        if option in _DISCOUNTS and number and not 0 <= value <= 1:
            raise ValueError(f"option {option!r} of {name!r} must be in [0, 1], got {value}")
