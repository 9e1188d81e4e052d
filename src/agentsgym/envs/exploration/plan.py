"""A trial of an exploration game as an exact decision process, without words."""

from collections.abc import Iterator
from dataclasses import dataclass

from agentsgym.envs.exploration.beliefs import (
    Beliefs,
    Evidence,
    certain,
    heard,
    nothing_known,
    posterior,
    without,
)
from agentsgym.envs.exploration.symmetry import any_bits, any_order

Queries = tuple[tuple[int, ...], ...]
"""`queries[q][v]` is the true answer to query q if the hidden value is v. Either every query tells
the value (in words of its own), or query q tells bit q of it."""


@dataclass(frozen=True, slots=True)
class Inform:
    """Ask query `query` about fact `fact`: earns nothing, and costs `look_cost`."""

    fact: int
    query: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Name a value of the fact that is asked for: pays, says whether it was right, and ends the
    episode."""

    value: int


Move = Inform | Claim


@dataclass(frozen=True, slots=True)
class Plan:
    """A trial: `steps` actions per episode, which has the share `weights[episode]` in the score.

    Each episode asks for one of the `facts`, each equally likely. An answer to a query is wrong
    with probability `noise`; then each other answer is equally likely. In `Beliefs` the fact that
    is asked for comes first.
    """

    queries: Queries
    weights: tuple[float, ...]
    steps: int = 1
    facts: int = 1
    noise: float = 0.0
    look_cost: float = 0.0
    right: float = 1.0
    wrong: float = 0.0

    @property
    def choices(self) -> int:
        """Number of values of a fact."""
        return len(self.queries[0])

    @property
    def answers(self) -> int:
        """Number of answers to a query."""
        return max(self.queries[0]) + 1

    @property
    def symmetric(self) -> bool:
        """Whether a true answer tells everything; then all values are alike."""
        return self.answers == self.choices

    @property
    def start(self) -> Beliefs:
        """Nothing is known."""
        return (nothing_known(self.choices),) * self.facts

    def chances(self, evidence: Evidence) -> list[float]:
        """The probability of each value of a fact, shape (choices,)."""
        noise = self.noise
        return posterior(evidence, (1.0 - noise) * (self.answers - 1) / noise if noise else 1.0)

    def answered(self, evidence: Evidence, query: int, answer: int) -> Evidence:
        """The evidence after an answer to a query."""
        agrees = [true == answer for true in self.queries[query]]
        return heard(evidence, agrees, noisy=self.noise > 0)

    def outcomes(self, beliefs: Beliefs, move: Move) -> Iterator[tuple[float, float, Beliefs]]:
        """(probability, reward, beliefs afterwards) of each possible outcome of a move."""
        if isinstance(move, Claim):
            asked, rest = beliefs[0], beliefs[1:]
            p = self.chances(asked)[move.value]
            if p > 0:
                yield p, self.right, (certain(self.choices, move.value), *rest)
            if p < 1:
                yield 1.0 - p, self.wrong, (without(asked, move.value), *rest)
            return
        before, after = beliefs[: move.fact], beliefs[move.fact + 1 :]
        evidence = beliefs[move.fact]
        for answer, p in enumerate(self.answer_chances(evidence, move.query)):
            if p > 0:
                known = self.answered(evidence, move.query, answer)
                yield p, 0.0 - self.look_cost, (*before, known, *after)

    def answer_chances(self, evidence: Evidence, query: int) -> list[float]:
        """The probability of each answer to a query, shape (answers,)."""
        true = [0.0] * self.answers
        for value, p in enumerate(self.chances(evidence)):
            true[self.queries[query][value]] += p
        others = self.noise / (self.answers - 1)
        return [p * (1.0 - self.noise) + (1.0 - p) * others for p in true]

    def canonical(self, beliefs: Beliefs) -> Beliefs:
        """One of the beliefs that differ only by names: of values, of facts not asked for."""
        rename = any_order if self.symmetric else any_bits
        asked, *others = map(rename, beliefs)
        return (asked, *sorted(others))

    def asking(self, beliefs: Beliefs, fact: int) -> Beliefs:
        """The beliefs of an episode that asks for another fact."""
        return (beliefs[fact], *beliefs[:fact], *beliefs[fact + 1 :])


def trial_weights(episodes: int = 1, free_shots: int = 0) -> tuple[float, ...]:
    """The share of each episode in the score, shape (episodes,): 0 in free shots, else the mean."""
    if not 0 <= free_shots < episodes:
        raise ValueError(
            f"need 0 <= free_shots < episodes, got {free_shots} of {episodes} episodes"
        )
    return (0.0,) * free_shots + (1.0 / (episodes - free_shots),) * (episodes - free_shots)
