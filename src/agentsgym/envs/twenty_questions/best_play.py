"""The best play we can compute: ask the most informative question, guess when the answer is known.

It is greedy, not exact: each question has the highest information gain over the secrets that are
still possible, with all of them equally likely. An exact optimum would have to search all orders of
questions. If all answers are known, no policy needs fewer than log2(secrets) questions on average;
on the quickstart table greedy play is within a tenth of a question of that bound. "I don't know" is
an answer like the others and also gives information. The policy only asks for the table's own
attributes: a player who compares sizes may in principle be better.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from agentsgym.envs.known_game import bit_mask, members
from agentsgym.envs.twenty_questions.knowledge import Attribute, KnowledgeTable
from agentsgym.types.rows import Floats


class BestPlay:
    """The greedy information-gain policy over one table.

    A set of secrets is a bit mask (bit i: `table.secrets[i]`); the best question for a set is
    computed once. Ties go to the earlier attribute, so play is deterministic.
    """

    def __init__(self, table: KnowledgeTable) -> None:
        self._table = table
        self.everything = (1 << len(table.secrets)) - 1
        self._agreeing = {
            (attribute.key, answer): bit_mask(column == value)
            for attribute, column in zip(table.attributes, table.values.T, strict=True)
            for answer, value in ((True, 1), (False, 0), (None, -1))
        }
        self._best: dict[int, Attribute | None] = {}

    def agreeing(self, possible: int, attribute: str | None, answer: bool | None) -> int:
        """The secrets of `possible` with this answer (None: "I don't know"); all of them if the
        question asked for no attribute of the table."""
        return possible & self._agreeing.get((attribute or "", answer), self.everything)

    def question(self, possible: int) -> Attribute | None:
        """The most informative attribute; None if none separates the secrets of `possible`."""
        if possible not in self._best:
            gains = np.round(self.gains(possible), 9)
            best = int(np.argmax(gains))
            self._best[possible] = self._table.attributes[best] if gains[best] > 0 else None
        return self._best[possible]

    def gains(self, possible: int) -> Floats:
        """Expected information of each attribute's answer, in bits, shape (attributes,)."""
        rows = self._table.values[members(possible)]
        shares = np.stack([(rows == value).mean(axis=0) for value in (1, 0, -1)])
        gains: Floats = -(shares * np.log2(np.maximum(shares, 1e-9))).sum(axis=0)
        return gains


@cache
def best_play(table: KnowledgeTable) -> BestPlay:
    """The reference player over a table, which remembers its questions."""
    return BestPlay(table)
