"""Advantages in the trainer, for the rollouts of this rank, which are whole groups; and the
probabilities of other actions, for estimators that need them."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from agentsgym.credit import (
    ESTIMATORS,
    StepAdvantages,
    concatenate,
    credit_steps,
    find_estimator,
    table_of,
    to_tokens,
)
from agentsgym.credit.advantages import StepKey
from agentsgym.credit.table import Choices, StepChoices, StepValues
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.batch import TrainRollout, TrainRow, bare_row, make_rollouts
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.ranks import Ranks
from agentsgym.types import Rollout, Row, StepSpan
from agentsgym.types.rows import Flags
from agentsgym.types.supports import Supports, mask_of


class GenerationAdvantages:
    """Advantages of this rank's rollouts of one generation. Ranks exchange step tables only where
    rollouts of different groups are compared. `choices` and `values` are those of each rollout's
    steps, if the estimator reads them.

    `of_rows` are the advantages of the rows, rollout by rollout. `signal`, shape (B,), says whether
    the group of each rollout has a learning signal, `share_with_signal` is the share of all ranks'
    rollouts for which it has, and `groups_with_signal` says it of all ranks' groups, in the order
    of their numbers. `returns` is what the values of the steps should have been (advantage +
    value), by (group, index) and step, if the estimator reads them.
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
        table = table_of(rollouts, choices, values)
        if _compares_groups(args):
            table = concatenate(ranks.gather([table]))
        estimator, options = find_estimator(args.advantage_estimator), args.estimator_options
        if estimator.per == "step":
            rows = [row for rollout in rollouts for row in rollout.rows]
            steps = credit_steps(table, estimator, **options)
            self.of_rows = to_tokens(rows, steps)
            if estimator.reads_values:
                self.returns = StepAdvantages.of(table, steps.value + table.value).by_rollout()
        else:
            self.of_rows = [values for one in rollouts for values in estimator(one, **options)]
        remaining = iter(self.of_rows)
        own = [[next(remaining) for _ in rollout.rows] for rollout in rollouts]
        groups = np.array([rollout.group for rollout in rollouts])
        have = groups[[any(row.any() for row in rows) for rows in own]]
        self.signal: Flags = np.isin(groups, have)
        every = ranks.gather(np.isin(np.unique(groups), have).tolist())
        self.groups_with_signal: Flags = np.array(every)
        self.share_with_signal = float(self.groups_with_signal.mean())

    def train_rollouts(self) -> list[TrainRollout]:
        """Rollouts with their advantages. Rollouts that failed or have no token that carries loss
        are not in the loss, nor are groups without signal that should be dropped (or for which
        resampling found no better task)."""
        counts = self.signal | (self._args.zero_signal_groups == "keep")
        made = make_rollouts(
            self._rollouts,
            self.of_rows,
            counts.tolist(),
            self._args.train_on,
            truncated=self._args.train_truncated_actions,
        )
        for rollout in made:
            rollout.in_loss = rollout.in_loss and rollout.agent_tokens > 0
        return made


def _compares_groups(args: GRPOEnvConfig) -> bool:
    """Whether advantages depend on other groups; those of a user's own estimator may."""
    entry = find_estimator(args.advantage_estimator)
    over_batch = args.estimator_options.get("scale_rewards") == "batch"
    return over_batch or entry.over_batch or ESTIMATORS.get(entry.name) is not entry


# -- the probabilities of other actions -----------------------------------------------------------
#
# Rollouts record the probability of the action that was taken. For estimators that need those of
# the group's other actions, one forward pass without a gradient adds that of the tokens with which
# other rollouts of the group went on at the same place.

Action = tuple[int, ...]
"""The token ids of an action."""

Options = Sequence[list[int]]
"""Token ids to be scored at the first tokens of an action."""


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
        if any(rollout.supports.whole for rollout in rollouts):
            raise ValueError("the estimator reads choices of tokens; actions: whole has none")
        repeated = _repeated_actions(rollouts)
        asked = {
            (rollout.session_id, span.key): (options, row.supports.between(span.start, span.stop))
            for rollout in rollouts
            for row, span in _later_steps(rollout)
            if (options := _options(_action(row, span), repeated.get(rollout.group, ())))
        }
        rows = [
            bare_row(row.token_ids, spans, rollout.session_id)
            for rollout in rollouts
            for row in rollout.rows
            if (spans := tuple(s for s in row.spans if (rollout.session_id, s.key) in asked))
        ]
        choices: dict[str, dict[StepKey, Choices]] = {r.session_id: {} for r in rollouts}

        def places(row: TrainRow) -> list[int]:
            steps = [(span.start - 1, asked[row.session_id, span.key][0]) for span in row.spans]
            return [before + k for before, options in steps for k in range(len(options))]

        if any(self._ranks.gather([bool(rows)])):
            for row, logits in self._scorer.read(rows, places, model, head=True):
                of_steps = [asked[row.session_id, span.key] for span in row.spans]
                sizes = [len(options) for options, _ in of_steps]
                parts = torch.split(logits / self._temperature, sizes)
                for span, step, part in zip(row.spans, of_steps, parts, strict=True):
                    choices[row.session_id][span.key] = _chances(*step, part)
        return [choices[rollout.session_id] for rollout in rollouts]


def _repeated_actions(rollouts: Sequence[Rollout]) -> dict[int, list[Action]]:
    """The actions that each group took at least twice."""
    live = [rollout for rollout in rollouts if not rollout.failed]
    times = Counter((r.group, _action(row, s)) for r in live for row in r.rows for s in row.spans)
    repeated: dict[int, list[Action]] = {}
    for (group, action), number in times.items():
        if number > 1:
            repeated.setdefault(group, []).append(action)
    return repeated


def _action(row: Row, span: StepSpan) -> Action:
    return tuple(row.token_ids[span.start : span.stop].tolist())


def _later_steps(rollout: Rollout) -> Iterator[tuple[Row, StepSpan]]:
    """The steps of a rollout that count, without its first one, before which there is no step that
    its luck could be taken from."""
    for row in [] if rollout.failed else rollout.rows:
        for span in row.spans:
            first = span.key == (rollout.episodes[0].index, 0)
            if not first and rollout.episodes[span.episode].score_weight:
                yield row, span


def _options(action: Action, known: Sequence[Action]) -> Options:
    """The tokens with which known actions go on, at each token of an action up to the first at
    which none does."""
    options: list[list[int]] = []
    for size in range(len(action)):
        tokens = {a[size] for a in known if len(a) > size and a[:size] == action[:size]}
        if not tokens:
            break
        options.append(sorted(tokens))
    return options


def _chances(options: Options, supports: Supports, logits: torch.Tensor) -> Choices:
    """The probabilities of the options at each of K tokens by logits of shape (K, V), among what
    the step's tokens were chosen from."""
    for place, ids in supports:
        if place < len(logits):
            outside = torch.from_numpy(~mask_of(ids, logits.shape[1])).to(logits.device)
            logits[place] = logits[place].masked_fill(outside, -torch.inf)
    totals = torch.logsumexp(logits, dim=-1)
    return tuple(
        dict(zip(tokens, (own[tokens] - total).exp().tolist(), strict=True))
        for tokens, own, total in zip(options, logits, totals, strict=True)
    )
