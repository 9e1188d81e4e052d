"""The exact expectations of a player, summed over all histories."""

from collections import defaultdict
from dataclasses import dataclass

from agentsgym.envs.exploration.best_play import Beliefs, BestPlayer, Claim, Inform, Move, Plan


class RandomPlayer:
    """Plays any of the moves, each with the same probability."""

    def __init__(self, plan: Plan) -> None:
        moves = [Claim(value) for value in range(plan.choices)]
        queries = [Inform(f, q) for f in range(plan.facts) for q in range(len(plan.queries))]
        every: list[Move] = [*moves, *queries]
        self.moves = [(1.0 / len(every), move) for move in every]


@dataclass(frozen=True, slots=True)
class Worth:
    """A player's expectations: the `score` of the trial, and for each episode its reward and the
    number of informing actions in it."""

    score: float
    rewards: tuple[float, ...]
    informing: tuple[float, ...]


def worth(plan: Plan, player: BestPlayer | RandomPlayer) -> Worth:
    """What `player` can expect in a trial. It visits all reachable beliefs."""
    rewards, informing = [], []
    reached: dict[Beliefs, float] = {plan.start: 1.0}
    for episode in range(len(plan.weights)):
        one = _Episode(plan, player, episode)
        for beliefs, weight in reached.items():
            for fact in range(plan.facts):
                one.reach(0, plan.asking(beliefs, fact), weight / plan.facts)
        one.play()
        rewards.append(one.reward)
        informing.append(one.informing)
        reached = one.over
    score = sum(w * reward for w, reward in zip(plan.weights, rewards, strict=True))
    return Worth(score, tuple(rewards), tuple(informing))


class _Episode:
    """The probabilities of all beliefs in one episode, step by step."""

    def __init__(self, plan: Plan, player: BestPlayer | RandomPlayer, episode: int) -> None:
        self._plan = plan
        self._player = player
        self._episode = episode
        self._at: list[dict[Beliefs, float]] = [defaultdict(float) for _ in range(plan.steps)]
        self.over: dict[Beliefs, float] = defaultdict(float)
        self.reward = 0.0
        self.informing = 0.0

    def reach(self, step: int, beliefs: Beliefs, weight: float) -> None:
        """Come to these beliefs with this probability, after `step` actions."""
        self._at[step][self._plan.canonical(beliefs)] += weight

    def play(self) -> None:
        """All steps."""
        for step, reached in enumerate(self._at):
            for beliefs, weight in reached.items():
                self._act(step, beliefs, weight)

    def _act(self, step: int, beliefs: Beliefs, weight: float) -> None:
        plan = self._plan
        for chance, move in self._moves(step, beliefs):
            self.informing += weight * chance * isinstance(move, Inform)
            over = isinstance(move, Claim) or step + 1 == plan.steps
            for p, reward, after in plan.outcomes(beliefs, move):
                share = weight * chance * p
                self.reward += share * reward
                if over:
                    self.over[plan.canonical(after)] += share
                else:
                    self.reach(step + 1, after, share)

    def _moves(self, step: int, beliefs: Beliefs) -> list[tuple[float, Move]]:
        if isinstance(self._player, RandomPlayer):
            return self._player.moves
        return [(1.0, self._player.best_move(self._episode, step, beliefs))]
