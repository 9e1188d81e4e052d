"""What players of Explore and Mastermind can expect, summed exactly over all histories, without
simulation: the figures of docs/environments.

    from expectations import explored, guessed, guessed_with_hint
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentsgym.envs.exploration.best_play import Beliefs, BestPlayer, Claim, Inform, Move, Plan
from agentsgym.envs.mastermind import ExactPlayer


@dataclass(frozen=True, slots=True)
class Explored:
    """A player's expectations: the `score` of the trial, and for each episode its reward and the
    number of informing actions in it."""

    score: float
    rewards: tuple[float, ...]
    informing: tuple[float, ...]


class RandomPlayer:
    """Plays any of Explore's moves, each with the same probability."""

    def __init__(self, plan: Plan) -> None:
        queries = [Inform(f, q) for f in range(plan.facts) for q in range(len(plan.queries))]
        self.moves: list[Move] = [*map(Claim, range(plan.choices)), *queries]


def explored(plan: Plan, player: BestPlayer | RandomPlayer) -> Explored:
    """What `player` can expect in a trial of Explore: it visits all reachable beliefs."""
    episodes = len(plan.weights)
    rewards, informing = [0.0] * episodes, [0.0] * episodes
    reached = {plan.start: 1.0}
    for episode in range(episodes):
        at: list[dict[Beliefs, float]] = [defaultdict(float) for _ in range(plan.steps)]
        over: dict[Beliefs, float] = defaultdict(float)
        for beliefs, weight in reached.items():
            for fact in range(plan.facts):
                at[0][plan.canonical(plan.asking(beliefs, fact))] += weight / plan.facts
        for step, beliefs, chance, move in _moves(at, episode, player):
            looks = isinstance(move, Inform)
            informing[episode] += chance * looks
            following = at[step + 1] if looks and step + 1 < plan.steps else over
            for p, reward, after in plan.outcomes(beliefs, move):
                rewards[episode] += chance * p * reward
                following[plan.canonical(after)] += chance * p
        reached = over
    score = sum(w * reward for w, reward in zip(plan.weights, rewards, strict=True))
    return Explored(score, tuple(rewards), tuple(informing))


def _moves(
    at: Sequence[Mapping[Beliefs, float]], episode: int, player: BestPlayer | RandomPlayer
) -> Iterator[tuple[int, Beliefs, float, Move]]:
    """(step, beliefs, probability, move) of an episode, step by step: later beliefs may be added
    meanwhile."""
    for step, reached in enumerate(at):
        for beliefs, weight in reached.items():
            if isinstance(player, RandomPlayer):
                moves = player.moves
            else:
                moves = [player.best_move(episode, step, beliefs)]
            for move in moves:
                yield step, beliefs, weight / len(moves), move


@dataclass(frozen=True, slots=True)
class Guessed:
    """A player's expectations: `score` of the trial, and per episode wins and guesses."""

    score: float
    wins: tuple[float, ...]
    guesses: tuple[float, ...]


def guessed(player: ExactPlayer, *known: int) -> Guessed:
    """The expectations of a player of Mastermind over all codes in these sets, equally likely. The
    player knows in which of the sets the code is."""
    space, steps, episodes = player.space, player.steps, len(player.weights)
    wins, guesses = [0.0] * episodes, [0.0] * episodes
    pending = [(candidates, 0, steps) for candidates in known]
    while pending:
        candidates, episode, left = pending.pop()
        if episode == episodes:
            continue
        guesses[episode] += candidates.bit_count()
        for answer, part in space.split(candidates, player.choose(candidates, episode, left)):
            won = answer == space.win
            wins[episode] += won
            over = won or left == 1
            pending.append((part, episode + 1, steps) if over else (part, episode, left - 1))
    count = sum(candidates.bit_count() for candidates in known)
    score = sum(weight * won for weight, won in zip(player.weights, wins, strict=True))
    return Guessed(score / count, tuple(w / count for w in wins), tuple(g / count for g in guesses))


def guessed_with_hint(player: ExactPlayer) -> Guessed:
    """The player's expectations after one opening hint, averaged over all codes and hints.

    A hint is a code other than the secret, each equally likely, with its feedback.
    """
    space = player.space
    hints = (space.parts(guess) for guess in range(len(space)))
    parts = (part for hint in hints for answer, part in hint.items() if answer != space.win)
    return guessed(player, *parts)
