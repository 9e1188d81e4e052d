"""Players of the exact process: the best one with and without informing actions, and a random one.

They see `Beliefs` whose first fact is the one that is asked for.
"""

from collections.abc import Iterator
from typing import Protocol

from agentsgym.envs.exploration.beliefs import Beliefs
from agentsgym.envs.exploration.plan import Claim, Inform, Move, Plan

MAX_STATES = 5_000
MAX_ACTIONS = 100
_TIE = 1e-12


class Player(Protocol):
    """Chooses moves."""

    def moves(self, episode: int, step: int, beliefs: Beliefs) -> list[tuple[float, Move]]:
        """(probability, move) of each move that it may choose."""
        ...


class RandomPlayer:
    """Plays any of the moves, each with the same probability."""

    def __init__(self, plan: Plan) -> None:
        moves = [Claim(value) for value in range(plan.choices)]
        queries = [Inform(f, q) for f in range(plan.facts) for q in range(len(plan.queries))]
        every: list[Move] = [*moves, *queries]
        self._moves = [(1.0 / len(every), move) for move in every]

    def moves(self, episode: int, step: int, beliefs: Beliefs) -> list[tuple[float, Move]]:
        """See `Player`."""
        return self._moves


class BestPlayer:
    """Maximizes the expected score of a trial, exactly, by dynamic programming over beliefs.

    With w_e the weight of episode e, b the beliefs (the asked fact first), N_e(b) the mean of
    V_{e,0} over the facts that episode e may ask for, and N past the last episode = 0,

        V_{e,t}(b) = max( max_v p_v (w_e right + N_{e+1}(b, v known))
                              + (1 − p_v) (w_e wrong + N_{e+1}(b, v ruled out)),
                          max_q −w_e look_cost + Σ_a P(a | b, q) V_{e,t+1}(b, a heard) ),

    where V_{e,steps} = N_{e+1}. With `informs=False` only claims are allowed, so this is the best
    play that never explores. Among equally good moves it prefers claims, the most probable value,
    and low numbers. Raises ValueError if the trial is too large.
    """

    def __init__(self, plan: Plan, *, informs: bool = True) -> None:
        actions = plan.steps * len(plan.weights)
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

    def moves(self, episode: int, step: int, beliefs: Beliefs) -> list[tuple[float, Move]]:
        """See `Player`."""
        return [(1.0, self.best_move(episode, step, beliefs))]

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
        asked = (self._value(episode, 0, plan.asking(beliefs, fact)) for fact in range(plan.facts))
        return sum(asked) / plan.facts

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
        over = isinstance(move, Claim) or step + 1 == plan.steps
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
