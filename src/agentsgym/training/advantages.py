"""Advantages in the trainer: over the groups of all ranks, for the rollouts of this one."""

from collections.abc import Sequence

import numpy as np

from agentsgym.credit import (
    StepAdvantages,
    concatenate,
    credit_steps,
    find_estimator,
    table_of,
    to_tokens,
)
from agentsgym.credit.table import StepChoices, scale_steps
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.batch import TrainRollout, make_rollouts
from agentsgym.training.ranks import Ranks
from agentsgym.types import Rollout, Row
from agentsgym.types.records import Flags, Floats

# Advantages this small are rounding errors, not different rewards.
_NOTHING = 1e-12


class GenerationAdvantages:
    """Advantages of the rollouts of one generation. A group may be spread over several ranks, so
    ranks exchange step tables. `choices` are those of each rollout's steps, if the estimator reads
    them."""

    def __init__(
        self,
        rollouts: Sequence[Rollout],
        args: GRPOEnvConfig,
        ranks: Ranks,
        choices: Sequence[StepChoices] = (),
    ) -> None:
        self._rollouts = rollouts
        self._args = args
        self._here = ranks.slice(len(rollouts))
        table = concatenate(ranks.gather([table_of(rollouts, choices)]))
        self._factors = np.ones(len(table.group))
        if args.scale_step_rewards == "batch":
            table, self._factors = scale_steps(table)
        self._table = table
        self._estimator = find_estimator(args.advantage_estimator)
        self._steps = self._credit_of_steps()
        signal = self._groups_with_signal(ranks)
        self.signal: Flags = signal[self._here]
        """Whether the group of each local rollout has a learning signal, shape (B,)."""
        self.share_with_signal = float(signal.mean())
        """Share of all ranks' rollouts whose group has a learning signal."""

    def _credit_of_steps(self) -> StepAdvantages | None:
        """One advantage per step of the table; None for an estimator of tokens."""
        if self._estimator.per == "token":
            return None
        return credit_steps(self._table, self._estimator, **self._args.estimator_options)

    def _groups_with_signal(self, ranks: Ranks) -> Flags:
        """Whether the group of each rollout of all ranks has a nonzero advantage."""
        table = self._table
        has = np.zeros(len(table.group), dtype=np.bool_)
        if self._steps is None:
            local = [any(a.any() for a in self._of_tokens(r)) for r in self._rollouts]
            has |= np.array(ranks.gather(local), dtype=np.bool_)
        else:
            has[table.rollout[np.abs(self._steps.value) > _NOTHING]] = True
        return np.isin(table.group, np.unique(table.group[has]))

    def of_rows(self) -> list[Floats]:
        """Advantages of this rank's rows, rollout by rollout."""
        rows = [row for rollout in self._rollouts for row in rollout.rows]
        if self._steps is not None:
            return to_tokens(rows, self._steps)
        factors = self._factors[self._here]
        return [
            values * factor
            for rollout, factor in zip(self._rollouts, factors, strict=True)
            for values in self._of_tokens(rollout)
        ]

    def _of_tokens(self, rollout: Rollout) -> list[Floats]:
        """Of each row."""
        values: list[Floats] = self._estimator(rollout, **self._args.estimator_options)
        return values

    def train_rollouts(self) -> list[TrainRollout]:
        """Rollouts with their advantages. Failed rollouts are not in the loss, nor are groups
        without signal that should be dropped (or for which resampling found no better task)."""
        drop = self._args.zero_signal_groups != "keep"
        in_loss = [
            not rollout.failed and (bool(has) or not drop)
            for rollout, has in zip(self._rollouts, self.signal, strict=True)
        ]
        advantages = self.of_rows()
        if not self._args.train_truncated_actions:
            kept = [_untruncated(row, r) for r in self._rollouts for row in r.rows]
            advantages = [a * k for a, k in zip(advantages, kept, strict=True)]
        return make_rollouts(self._rollouts, advantages, in_loss, self._args.train_on)


def _untruncated(row: Row, rollout: Rollout) -> Floats:
    """1.0 on each token, but 0.0 on actions that reached the token cap, shape (T,)."""
    kept = np.ones(len(row.token_ids))
    for span in row.spans:
        if rollout.episodes[span.episode].steps[span.step].truncated:
            kept[span.start : span.stop] = 0.0
    return kept
