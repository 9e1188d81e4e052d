"""The rewards of a Mastermind trial, and a player's exact expected score in it."""

from dataclasses import dataclass
from typing import Protocol

from agentsgym.envs.mastermind.codes import CodeSpace


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """A trial with one code, in which the player remembers its earlier episodes.

    Each of `episodes` has at most `steps` guesses and ends with the right one. The score is the
    mean over the episodes after the first `free_shots` of [won] − step_cost · guesses.
    """

    steps: int
    episodes: int = 1
    free_shots: int = 0
    step_cost: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.free_shots < self.episodes:
            raise ValueError(f"need steps >= 1 and 0 <= free_shots < episodes, got {self}")

    def weight(self, episode: int) -> float:
        """The share of an episode's reward in the score."""
        return 0.0 if episode < self.free_shots else 1.0 / (self.episodes - self.free_shots)


class Player(Protocol):
    """Chooses guesses; it knows the codes that are still possible and the position in the trial."""

    def choose(self, candidates: int, episode: int, left: int) -> int:
        """Index of the guess, with `left` guesses left in the episode, including this one."""
        ...


@dataclass(frozen=True, slots=True)
class Worth:
    """A player's expectations: `score` of the trial, and per episode wins and guesses."""

    score: float
    wins: tuple[float, ...]
    guesses: tuple[float, ...]


def worth(space: CodeSpace, player: Player, plan: TrialPlan, candidates: int) -> Worth:
    """The player's expectations over all of `candidates`, equally likely; exact."""
    wins, guesses = [0.0] * plan.episodes, [0.0] * plan.episodes
    pending = [(candidates, 0, plan.steps)]
    while pending:
        known, episode, left = pending.pop()
        if episode == plan.episodes:
            continue
        guesses[episode] += known.bit_count()
        for answer, part in space.split(known, player.choose(known, episode, left)):
            won = answer == space.win
            wins[episode] += won
            over = won or left == 1
            pending.append((part, episode + 1, plan.steps) if over else (part, episode, left - 1))
    return _worth(plan, candidates.bit_count(), wins, guesses)


def _worth(plan: TrialPlan, count: int, wins: list[float], guesses: list[float]) -> Worth:
    score = sum(
        plan.weight(e) * (wins[e] - plan.step_cost * guesses[e]) for e in range(plan.episodes)
    )
    return Worth(score / count, tuple(w / count for w in wins), tuple(g / count for g in guesses))


def worth_with_hint(space: CodeSpace, player: Player, plan: TrialPlan) -> Worth:
    """The player's expectations after one opening hint, averaged over all codes and hints.

    A hint is a code other than the secret, each equally likely, with its feedback.
    """
    parts = [
        part
        for guess in range(len(space))
        for answer, part in space.parts(guess).items()
        if answer != space.win
    ]
    each = [(part.bit_count(), worth(space, player, plan, part)) for part in parts]
    total = sum(count for count, _ in each)
    return Worth(
        sum(count * one.score for count, one in each) / total,
        tuple(sum(n * one.wins[e] for n, one in each) / total for e in range(plan.episodes)),
        tuple(sum(n * one.guesses[e] for n, one in each) / total for e in range(plan.episodes)),
    )
