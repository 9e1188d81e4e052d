"""The probabilities of the group's other actions, for estimators that need them.

Rollouts record the probability of the action that was taken. One forward pass without a gradient
adds that of the tokens with which other rollouts of the group went on at the same place.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from agentsgym.credit.table import StepChoices
from agentsgym.training.loss.batch import TrainRow
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.ranks import Ranks
from agentsgym.types import Rollout, Row

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
    """Scores actions that a group took at least twice, at every place in its later scored steps."""

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
            for places in [list(_places(r, rollout, row, repeated.get(rollout.group, ())))]
            if places
        ]
        found: list[dict[tuple[int, int], list[Mapping[int, float]]]] = [{} for _ in rollouts]
        if any(self._ranks.gather([bool(rows)])):
            for place, chances in self._score(rows, model):
                scored = dict(zip(place.tokens, chances, strict=True))
                found[place.rollout].setdefault(place.key, []).append(scored)
        return [{key: tuple(scored) for key, scored in of.items()} for of in found]

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
        given = [row for row, _ in rows]
        for chunk in self._scorer.chunks(given, given):
            at = [(i, p) for i, row in enumerate(chunk) for p in places.get(id(row), ())]
            before = [(i, place.position - 1) for i, place in at]
            logits = self._scorer.logits(model, chunk, before or [(0, 0)]) / self._temperature
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
