"""A trial of an exploration game as an exact decision process, without words, and its best play.

A game hides `facts` values, each one of `choices` equally likely ones. `Evidence` about a value has
an integer per possible value: RULED_OUT, or the number of answers that agree with it, less the
smallest such number. With answers that are wrong with probability ε among M possible ones, a value
with count c has the posterior probability ρ^c / Σ ρ^c', ρ = (1 − ε)(M − 1) / ε.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

MAX_STATES = 5_000
MAX_ACTIONS = 100
_MOST_PERMUTED = 4
_TIE = 1e-12

Evidence = tuple[int, ...]
Beliefs = tuple[Evidence, ...]
RULED_OUT = -1


def _ordered(evidence: Evidence) -> Evidence:
    """For games in which a true answer tells the value, so that all values are alike."""
    return tuple(sorted(evidence))


@lru_cache(maxsize=100_000)
def _bits_renamed(evidence: Evidence) -> Evidence:
    """For queries that each tell a bit of the value: bits may be flipped and, if there are at most
    4, change places."""
    orders, masks = _orders(len(evidence)), range(len(evidence))
    return min(tuple(evidence[v ^ mask] for v in order) for order in orders for mask in masks)


@lru_cache(maxsize=16)
def _orders(choices: int) -> list[list[int]]:
    """The values in the order that each order of their bits gives."""
    bits = range(choices.bit_length() - 1)
    orders = permutations(bits) if len(bits) <= _MOST_PERMUTED else [tuple(bits)]
    return [
        [sum((v >> k & 1) << place for place, k in enumerate(order)) for v in range(choices)]
        for order in orders
    ]


Queries = tuple[tuple[int, ...], ...]
"""`queries[q][v]` is the true answer to query q if the hidden value is v. Either every query tells
the value (in words of its own), or query q tells bit q of it, or no two values are alike."""


@lru_cache(maxsize=256)
def _tell_bits(queries: Queries) -> bool:
    """Whether query q tells bit q of the value."""
    values = range(len(queries[0]))
    bits = tuple(tuple(v >> q & 1 for v in values) for q in range(len(queries)))
    return queries == bits and len(values) == 1 << len(queries)


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
class News:
    """The environment's answer to a move about fact `fact`: that to a query, or whether a claim is
    right."""

    move: Move
    fact: int
    value: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A trial: `steps` actions per episode, which has the share `weights[episode]` in the score; an
    episode without weight (a free shot) has `free_steps` actions, if that is given.

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
    free_steps: int | None = None

    def actions(self, episode: int) -> int:
        """Number of actions of an episode."""
        free = self.free_steps is not None and not self.weights[episode]
        return int(self.free_steps or 0) if free else self.steps

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

    def tells(self, move: Inform) -> bool:
        """Whether the answer depends on what is hidden."""
        return len(set(self.queries[move.query])) > 1

    @property
    def start(self) -> Beliefs:
        """Nothing is known."""
        return ((0,) * self.choices,) * self.facts

    def chances(self, evidence: Evidence) -> list[float]:
        """The probability of each value of a fact, shape (choices,)."""
        noise = self.noise  # without it, all values that are left are equally likely
        ratio = (1.0 - noise) * (self.answers - 1) / noise if noise else 1.0
        most = max(evidence) if ratio >= 1.0 else 0
        weights = [0.0 if c == RULED_OUT else ratio ** (c - most) for c in evidence]
        total = sum(weights)
        return [weight / total for weight in weights]

    def learned(self, beliefs: Beliefs, news: News) -> Beliefs:
        """The beliefs after an answer. Raises ValueError if it contradicts them."""
        evidence, move = beliefs[news.fact], news.move
        if isinstance(move, Claim):
            agrees = [(v == move.value) == news.value for v in range(self.choices)]
        else:
            agrees = [true == news.value for true in self.queries[move.query]]
        if isinstance(move, Inform) and self.noise:
            counts = [
                c if c == RULED_OUT else c + ok for c, ok in zip(evidence, agrees, strict=True)
            ]
        else:
            counts = [c if ok else RULED_OUT for c, ok in zip(evidence, agrees, strict=True)]
        least = min((c for c in counts if c != RULED_OUT), default=None)
        if least is None:
            raise ValueError("the answers contradict each other: no value is left")
        evidence = tuple(c if c == RULED_OUT else c - least for c in counts)
        return (*beliefs[: news.fact], evidence, *beliefs[news.fact + 1 :])

    def outcomes(self, beliefs: Beliefs, move: Move) -> Iterator[tuple[float, float, Beliefs]]:
        """(probability, reward, beliefs afterwards) of each possible outcome of a move."""
        if isinstance(move, Claim):
            p = self.chances(beliefs[0])[move.value]
            news = [
                (p, self.right, News(move, 0, True)),
                (1.0 - p, self.wrong, News(move, 0, False)),
            ]
        else:
            chances = enumerate(self.answer_chances(beliefs[move.fact], move.query))
            cost = 0.0 - self.look_cost
            news = [(p, cost, News(move, move.fact, value)) for value, p in chances]
        for p, reward, one in news:
            if p > 0:
                yield p, reward, self.learned(beliefs, one)

    def answer_chances(self, evidence: Evidence, query: int) -> list[float]:
        """The probability of each answer to a query, shape (answers,)."""
        true = [0.0] * self.answers
        for value, p in enumerate(self.chances(evidence)):
            true[self.queries[query][value]] += p
        others = self.noise / (self.answers - 1)
        return [p * (1.0 - self.noise) + (1.0 - p) * others for p in true]

    def canonical(self, beliefs: Beliefs) -> Beliefs:
        """One of the beliefs that differ only by names: of values, of facts not asked for."""
        first, *others = beliefs
        if self.symmetric or _tell_bits(self.queries):
            first, *others = map(_ordered if self.symmetric else _bits_renamed, beliefs)
        return (first, *sorted(others))

    def asking(self, beliefs: Beliefs, fact: int) -> Beliefs:
        """The beliefs of an episode that asks for another fact."""
        return (beliefs[fact], *beliefs[:fact], *beliefs[fact + 1 :])


class BestPlayer:
    """Maximizes the expected score of a trial, exactly, by dynamic programming over beliefs.

    With w_e the weight of episode e, b the beliefs (the asked fact first), N_e(b) the mean of
    V_{e,0} over the facts that episode e may ask for, and N past the last episode = 0,

        V_{e,t}(b) = max( max_v p_v (w_e right + N_{e+1}(b, v known))
                              + (1 − p_v) (w_e wrong + N_{e+1}(b, v ruled out)),
                          max_q −w_e look_cost + Σ_a P(a | b, q) V_{e,t+1}(b, a heard) ),

    where V_{e,actions} = N_{e+1}. With `informs=False` only claims are allowed, so this is the best
    play that never explores. Among equally good moves it prefers claims, the most probable value,
    and low numbers. Raises ValueError if the trial is too large.
    """

    def __init__(self, plan: Plan, *, informs: bool = True) -> None:
        actions = sum(map(plan.actions, range(len(plan.weights))))
        if actions > MAX_ACTIONS:
            raise ValueError(f"exact play allows {MAX_ACTIONS} actions in a trial, got {actions}")
        self._plan = plan
        self._informs = informs
        # In a symmetric game all queries tell the same.
        self._queries = [0] if plan.symmetric else range(len(plan.queries))
        self._values: dict[tuple[int, int, Beliefs], float] = {}
        self._best: dict[tuple[int, int, Beliefs], Move] = {}

    def value(self) -> float:
        """The expected score of the trial."""
        return self._next(0, self._plan.start)

    def best_move(self, episode: int, step: int, beliefs: Beliefs) -> Move:
        """The best move, with `step` actions of the episode used."""
        key = (episode, step, beliefs)
        if key not in self._best:
            self._best[key] = self._search(*key)
        return self._best[key]

    def _search(self, episode: int, step: int, beliefs: Beliefs) -> Move:
        best, highest = None, float("-inf")
        for move in self._candidates(beliefs, merged=False):
            value = self._move_value(episode, step, beliefs, move)
            if value > highest + _TIE:
                best, highest = move, value
        assert best is not None
        return best

    def _next(self, episode: int, beliefs: Beliefs) -> float:
        """The value at the start of an episode, before it is known what it asks for."""
        plan = self._plan
        if episode == len(plan.weights):
            return 0.0
        values = (self._value(episode, 0, plan.asking(beliefs, fact)) for fact in range(plan.facts))
        return sum(values) / plan.facts

    def _value(self, episode: int, step: int, beliefs: Beliefs) -> float:
        key = (episode, step, self._plan.canonical(beliefs))
        if key not in self._values:
            if len(self._values) >= MAX_STATES:
                raise ValueError(f"exact play needs more than {MAX_STATES} states")
            self._values[key] = max(
                self._move_value(episode, step, key[2], move)
                for move in self._candidates(key[2], merged=True)
            )
        return self._values[key]

    def _move_value(self, episode: int, step: int, beliefs: Beliefs, move: Move) -> float:
        plan = self._plan
        over = isinstance(move, Claim) or step + 1 == plan.actions(episode)
        total = 0.0
        for p, reward, after in plan.outcomes(beliefs, move):
            later = (
                self._next(episode + 1, after) if over else self._value(episode, step + 1, after)
            )
            total += p * (plan.weights[episode] * reward + later)
        return total

    def _candidates(self, beliefs: Beliefs, *, merged: bool) -> Iterator[Move]:
        """Claims, the most probable first, then queries; with `merged` one of equivalent ones."""
        plan = self._plan
        chances = plan.chances(beliefs[0])
        order = sorted(range(plan.choices), key=lambda value: (-chances[value], value))
        if merged and plan.symmetric:
            order = list({beliefs[0][value]: value for value in reversed(order)}.values())
        yield from (Claim(value) for value in order)
        if self._informs:
            for fact in range(plan.facts):
                yield from (Inform(fact, query) for query in self._queries)
