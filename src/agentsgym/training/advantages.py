"""Advantages in the trainer: over the groups of all ranks, for the rollouts of this one; and the
probabilities of other actions, for estimators that need them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from agentsgym.credit import (
    StepAdvantages,
    concatenate,
    credit_steps,
    find_estimator,
    table_of,
    to_tokens,
)
from agentsgym.credit.table import StepChoices, StepValues, scale_steps
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.batch import TrainRollout, TrainRow, make_rollouts
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.ranks import Ranks
from agentsgym.types import Rollout, Row, StepSpan
from agentsgym.types.rows import Flags


class GenerationAdvantages:
    """Advantages of the rollouts of one generation. A group may be spread over several ranks, so
    ranks exchange step tables. `choices` and `values` are those of each rollout's steps, if the
    estimator reads them.

    `of_rows` are the advantages of this rank's rows, rollout by rollout. `signal`, shape (B,), says
    whether the group of each local rollout has a learning signal, and `share_with_signal` is the
    share of all ranks' rollouts for which it has. `groups_with_signal` says it of all ranks'
    groups, in the order of their numbers. `returns` is what the values of all ranks' steps should
    have been (advantage + value), by (group, index) and step, if the estimator reads them.
    """

    def __init__(
        self,
        rollouts: Sequence[Rollout],
        args: GRPOEnvConfig,
        ranks: Ranks,
        choices: Sequence[StepChoices] = (),
        values: Sequence[StepValues] = (),
    ) -> None:
        self._rollouts = rollouts
        self._args = args
        here = ranks.slice(len(rollouts))
        table = concatenate(ranks.gather([table_of(rollouts, choices, values)]))
        factors = np.ones(len(table.group))
        if args.scale_step_rewards == "batch":
            table, factors = scale_steps(table)
        estimator, options = find_estimator(args.advantage_estimator), args.estimator_options
        if estimator.per == "step":
            rows = [row for rollout in rollouts for row in rollout.rows]
            steps = credit_steps(table, estimator, **options)
            self.of_rows = to_tokens(rows, steps)
            if estimator.reads_values:
                self.returns = StepAdvantages.of(table, steps.value + table.value).by_rollout()
        else:
            self.of_rows = [
                values * factor
                for rollout, factor in zip(rollouts, factors[here], strict=True)
                for values in estimator(rollout, **options)
            ]
        has = np.array(ranks.gather(self._with_signal()), dtype=np.bool_)
        signal = np.isin(table.group, table.group[has])
        self.groups_with_signal: Flags = np.isin(np.unique(table.group), table.group[has])
        self.signal: Flags = signal[here]
        self.share_with_signal = float(signal.mean())

    def _with_signal(self) -> list[bool]:
        """Whether each local rollout has a nonzero advantage."""
        remaining = iter(self.of_rows)
        own = [[next(remaining) for _ in rollout.rows] for rollout in self._rollouts]
        return [any(row.any() for row in rows) for rows in own]

    def train_rollouts(self) -> list[TrainRollout]:
        """Rollouts with their advantages. Rollouts that failed or have no token that carries loss
        are not in the loss, nor are groups without signal that should be dropped (or for which
        resampling found no better task)."""
        drop, rollouts = self._args.zero_signal_groups != "keep", self._rollouts
        if not self._args.train_truncated_actions:
            rollouts = [_without_truncated(rollout) for rollout in rollouts]
        in_loss = [
            any(row.agent_tokens for row in rollout.rows) and (bool(has) or not drop)
            for rollout, has in zip(rollouts, self.signal, strict=True)
        ]
        return make_rollouts(rollouts, self.of_rows, in_loss, self._args.train_on)


def _without_truncated(rollout: Rollout) -> Rollout:
    """The rollout, to which the tokens of actions that reached the token cap are mere context."""

    def kept(row: Row) -> tuple[StepSpan, ...]:
        steps = ((span, rollout.episodes[span.episode].steps[span.step]) for span in row.spans)
        return tuple(span for span, step in steps if not step.truncated)

    return rollout.with_rows(replace(row, spans=kept(row)) for row in rollout.rows)


# -- the probabilities of other actions -----------------------------------------------------------
#
# Rollouts record the probability of the action that was taken. For estimators that need those of
# the group's other actions, one forward pass without a gradient adds that of the tokens with which
# other rollouts of the group went on at the same place.

Action = tuple[int, ...]
"""The token ids of an action."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A token of an action, its position in the row, and the tokens to be scored there."""

    rollout: int
    key: tuple[int, int]
    position: int
    tokens: tuple[int, ...]


class ChoiceScorer:
    """Computes the probabilities of actions that a group took at least twice, at every place in its
    later steps that count."""

    def __init__(self, scorer: Scorer, ranks: Ranks, temperature: float) -> None:
        self._scorer = scorer
        self._ranks = ranks
        self._temperature = temperature

    def choices_of(self, rollouts: Sequence[Rollout], model: nn.Module) -> list[StepChoices]:
        """The choices of each rollout's steps, those without choices left out. All ranks must call
        it."""
        repeated = self._repeated_actions(rollouts)
        rows = [
            (TrainRow.of(row, np.zeros(len(row.token_ids))), places)
            for r, rollout in enumerate(rollouts)
            if not rollout.failed
            for row in rollout.rows
            if (places := list(_places(r, rollout, row, repeated.get(rollout.group, ()))))
        ]
        choices: list[dict[tuple[int, int], list[Mapping[int, float]]]] = [{} for _ in rollouts]
        if any(self._ranks.gather([bool(rows)])):
            for place, chances in self._score(rows, model):
                token = dict(zip(place.tokens, chances, strict=True))
                choices[place.rollout].setdefault(place.key, []).append(token)
        return [{key: tuple(tokens) for key, tokens in steps.items()} for steps in choices]

    def _repeated_actions(self, rollouts: Sequence[Rollout]) -> dict[int, list[Action]]:
        """The actions that each group took at least twice, on whatever rank."""
        times: Counter[tuple[int, Action]] = Counter()
        for rollout in rollouts:
            if not rollout.failed:
                times.update((rollout.group, action) for action in _actions(rollout))
        together: Counter[tuple[int, Action]] = Counter()
        for part in self._ranks.gather([times]):
            together.update(part)
        repeated: dict[int, list[Action]] = {}
        for (group, action), number in together.items():
            if number > 1:
                repeated.setdefault(group, []).append(action)
        return repeated

    @torch.no_grad()
    def _score(
        self, rows: Sequence[tuple[TrainRow, list[_Place]]], model: nn.Module
    ) -> Iterator[tuple[_Place, list[float]]]:
        """Each place with the probabilities of its tokens, in the order of a row's tokens."""
        places = {id(row): of_row for row, of_row in rows}
        for layout in self._scorer.layouts((row for row, _ in rows), model):
            at = [(i, p) for i, row in enumerate(layout.rows) for p in places.get(id(row), ())]
            before = [(i, place.position - 1) for i, place in at]
            logits = self._scorer.logits(model, layout, before or [(0, 0)]) / self._temperature
            totals = torch.logsumexp(logits, dim=-1)
            for number, (_, place) in enumerate(at):
                chances = (logits[number, list(place.tokens)] - totals[number]).exp()
                yield place, chances.tolist()


def _actions(rollout: Rollout) -> Iterator[Action]:
    for row in rollout.rows:
        for span in row.spans:
            yield tuple(row.token_ids[span.start : span.stop].tolist())


def _places(r: int, rollout: Rollout, row: Row, known: Sequence[Action]) -> Iterator[_Place]:
    """The tokens of a row's scored actions at which a known action goes on. The first step of a
    rollout has no step before it that its luck could be taken from."""
    first = rollout.episodes[0].index, 0
    for span in row.spans:
        if span.key == first or not rollout.episodes[span.episode].score_weight:
            continue
        action = tuple(row.token_ids[span.start : span.stop].tolist())
        for size in range(len(action)):
            tokens = {a[size] for a in known if len(a) > size and a[:size] == action[:size]}
            if not tokens:
                break
            yield _Place(r, span.key, span.start + size, tuple(sorted(tokens)))
