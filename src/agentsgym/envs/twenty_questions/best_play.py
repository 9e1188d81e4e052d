"""The best play we can compute: ask the most informative question, guess when the answer is known.

It is greedy, not exact: each question has the highest information gain over the secrets that are
still possible, with all of them equally likely. An exact optimum would have to search all orders of
questions. If all answers are known, no policy needs fewer than log2(secrets) questions on average;
on the quickstart table greedy play is within a tenth of a question of that bound. "I don't know" is
an answer like the others and also gives information. The policy only asks for the table's own
attributes: a player who compares sizes or asks for letters may in principle be better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agentsgym.envs.twenty_questions.knowledge import KnowledgeTable

Known = Sequence[tuple[str, bool | None]]
_OUTCOMES: tuple[tuple[bool | None, int], ...] = ((True, 1), (False, 0), (None, -1))


@dataclass(frozen=True)
class BestPlay:
    """The greedy information-gain policy over one table.

    A set of candidate secrets is a bit mask (bit i: `table.secrets[i]`); the best question for a
    set is computed once. Ties go to the earlier attribute and the earlier secret, so play is
    deterministic.
    """

    table: KnowledgeTable
    _best: dict[int, int | None] = field(default_factory=dict, repr=False, compare=False)
    _masks: dict[tuple[str, bool | None], int] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for j, attribute in enumerate(self.table.attributes):
            column = self.table.values[:, j]
            for answer, value in _OUTCOMES:
                self._masks[attribute.key, answer] = _mask(column == value)
        self._masks["", None] = _mask(np.ones(len(self.table.secrets), dtype=bool))

    def next_action(self, known: Known, wrong: frozenset[str], steps_left: int) -> str:
        """The next question, or a guess in brackets.

        `known` are (attribute key, answer) pairs with None for "I don't know", `wrong` the wrong
        guesses so far, `steps_left` the actions left including this one. It guesses if one
        candidate is left, if no attribute separates the candidates, or if this is the last step.
        """
        candidates = self._candidates(known, wrong)
        asked = self._question(candidates) if steps_left > 1 else None
        if asked is None:
            return f"[{self.table.secrets[_lowest(candidates)]}]"
        return self.table.attributes[asked].question

    def consistent(self, known: Known) -> tuple[str, ...]:
        """The secrets that agree with all the answers, in the table's order."""
        return tuple(self.table.secrets[i] for i in _bits(self._filter(known)))

    def play(self, secret: str, known: Known = (), max_steps: int = 20) -> tuple[bool, int]:
        """(won, number of steps including the guess) with the table's answers. Raises KeyError."""
        row = self.table.row(secret)
        answers, used = list(known), 0
        while True:
            candidates = self._candidates(answers, frozenset())
            asked = self._question(candidates) if max_steps - used > 1 else None
            used += 1
            if asked is None:
                return self.table.secrets[_lowest(candidates)] == secret, used
            value = int(row[asked])
            answers.append((self.table.attributes[asked].key, None if value < 0 else value == 1))

    def expected(self, known: Known = (), max_steps: int = 20) -> tuple[float, float]:
        """(win probability, mean steps) over the secrets that agree with `known`, equally likely.

        (0.0, 0.0) if no secret agrees. Steps count questions and the guess.
        """
        candidates = self._filter(known)
        count = candidates.bit_count()
        if count == 0:
            return 0.0, 0.0
        wins, steps = self._tree(candidates, max_steps)
        return wins / count, steps / count

    def _tree(self, candidates: int, steps_left: int) -> tuple[int, int]:
        """(wins, steps) summed over the candidates."""
        asked = self._question(candidates) if steps_left > 1 else None
        if asked is None:
            return 1, candidates.bit_count()
        wins, steps = 0, candidates.bit_count()
        key = self.table.attributes[asked].key
        for answer, _ in _OUTCOMES:
            part = candidates & self._masks[key, answer]
            if part:
                more = self._tree(part, steps_left - 1)
                wins, steps = wins + more[0], steps + more[1]
        return wins, steps

    def _filter(self, known: Known) -> int:
        candidates = self._masks["", None]
        for key, answer in known:
            candidates &= self._masks[key, answer]
        return candidates

    def _candidates(self, known: Known, wrong: frozenset[str]) -> int:
        """The possible secrets; of contradicting answers, the oldest are ignored."""
        index = self.table.secret_index
        excluded = sum(1 << index[secret] for secret in wrong if secret in index)
        pairs = list(known)
        while True:
            candidates = self._filter(pairs) & ~excluded
            if candidates:
                return candidates
            if not pairs:
                return self._masks["", None]
            pairs.pop(0)

    def _question(self, candidates: int) -> int | None:
        """The attribute with the highest gain; None if no attribute splits the candidates."""
        if candidates not in self._best:
            self._best[candidates] = self._choose(candidates)
        return self._best[candidates]

    def _choose(self, candidates: int) -> int | None:
        rows = self.table.values[list(_bits(candidates))]
        n = len(rows)
        if n < 2:
            return None
        yes, unknown = (rows == 1).sum(axis=0), (rows == -1).sum(axis=0)
        counts = np.stack([yes, unknown, n - yes - unknown]).astype(np.float64)
        entropy = -(counts / n * np.log(np.maximum(counts, 1.0) / n)).sum(axis=0)
        best = int(np.argmax(np.round(entropy, 9)))
        return best if entropy[best] > 1e-9 else None


def _mask(flags: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        found.append(_lowest(mask))
        mask &= mask - 1
    return found
