"""Variance of the gradient per environment step, on processes whose values are known exactly.

    python benchmarks/variance.py [--groups N] [--group-size N] [--quick]

The task hides which of 8 doors pays 1. An episode is one action: look (earns nothing and shows the
door) or open a door. A trial is some free shots and some scored episodes; the agent remembers what
it saw and what it won. Actions are spelled in two tokens, "open" and the door, so that `trial_cv`
sums out the door only. Two policies: one at a start that looks in 15 % of rounds and opens the
door that it knows in 70 %, and a later one (60 %, 90 %). The policy has six parameters.

For each estimator the summed variance of one group's gradient over that of `rloo` on the
score, from the same rollouts, with a 95 % interval over groups. *floor* replaces the return by the
exact value of (history, action, hidden door): no estimator knows it. *branches* plays half as many
free shots, each with two continuations: its figure is variance times environment steps over that of
`trial`. The last line is one JSON object.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentsgym.credit import ESTIMATORS, StepTable
from agentsgym.credit.baselines import leave_one_out
from agentsgym.credit.estimators.trial import trial_returns
from agentsgym.credit.table import objects
from agentsgym.types.records import Floats, Ints

DOORS = 8
LOOK, OPEN = 0, 1
POLICIES = {"start": (0.15, 0.7), "later": (0.6, 0.9)}


@dataclass(frozen=True)
class Game:
    """`free` free shots, then `scored` episodes, played by a policy that looks with probability
    `look` while it does not know the door, and opens the door that it knows with `use`."""

    free: int
    scored: int
    look: float
    use: float

    @property
    def episodes(self) -> int:
        return self.free + self.scored

    def policy(self, knows: bool) -> Floats:
        """Probabilities of: look, the paying door, each of the other doors."""
        if not knows:
            door = (1 - self.look) / DOORS
            return np.array([self.look, door, *[door] * (DOORS - 1)])
        rest = (1 - self.use) / DOORS
        return np.array([rest, self.use, *[rest] * (DOORS - 1)])

    def weight(self, episode: int) -> float:
        """The share of an episode's reward in the score."""
        return float(episode >= self.free) / self.scored

    def values(self) -> tuple[Floats, Floats]:
        """Exact score still to come, at (episode, knows) and for an action there."""
        state = np.zeros((self.episodes + 1, 2))
        action = np.zeros((self.episodes, 2, DOORS + 1))
        for episode in reversed(range(self.episodes)):
            for knows in (0, 1):
                action[episode, knows] = state[episode + 1, knows]
                action[episode, knows, :2] = state[episode + 1, 1]
                action[episode, knows, 1] += self.weight(episode)
                state[episode, knows] = self.policy(bool(knows)) @ action[episode, knows]
        return state, action


@dataclass(frozen=True)
class Played:
    """Steps of rollouts with equal lengths: `knows` and `act` (0 look, 1 the paying door, 2 … the
    others) have shape (rollouts, episodes)."""

    knows: Ints
    act: Ints

    @property
    def reward(self) -> Floats:
        return (self.act == 1).astype(np.float64)


def play(game: Game, rng: np.random.Generator, rollouts: int, before: Played | None) -> Played:
    """Whole trials, or the continuations of the free shots in `before`."""
    start = 0 if before is None else game.free
    knows = np.zeros((rollouts, game.episodes), dtype=np.int64)
    act = np.zeros((rollouts, game.episodes), dtype=np.int64)
    known = np.zeros(rollouts, dtype=np.int64)
    if before is not None:
        knows[:, :start], act[:, :start] = before.knows[:, :start], before.act[:, :start]
        known = (act[:, :start] < 2).any(axis=1).astype(np.int64)
    steps = np.array([game.policy(False), game.policy(True)]).cumsum(axis=1)
    for episode in range(start, game.episodes):
        knows[:, episode] = known
        beyond = rng.random(rollouts)[:, None] > steps[known]
        act[:, episode] = np.minimum(beyond.sum(axis=1), DOORS)
        known = np.maximum(known, act[:, episode] < 2)
    return Played(knows, act)


def table_of(game: Game, played: Played, size: int) -> StepTable:
    """The step table of these rollouts in groups of `size`, with the policy's probabilities."""
    number, episodes = played.act.shape
    act, knows = played.act.ravel(), played.knows.ravel()
    words = [(LOOK,), *[(OPEN, door) for door in range(DOORS)]]
    chances = []
    for known in (False, True):
        p = game.policy(known)
        doors = dict(enumerate((p[1:] / p[1:].sum()).tolist()))
        chances.append(({LOOK: float(p[0]), OPEN: float(1 - p[0])}, doors))
    weight = np.array([game.weight(e) for e in range(episodes)])
    return StepTable(
        group=np.repeat(np.arange(number // size), size),
        live=np.ones(number, dtype=np.bool_),
        final_reward=played.reward @ weight,
        env=objects(["Doors"] * number),
        rollout=np.repeat(np.arange(number), episodes),
        episode=np.tile(np.arange(episodes), number),
        step=np.zeros(number * episodes, dtype=np.int64),
        reward=played.reward.ravel(),
        score_weight=np.tile(weight, number),
        tokens=np.ones(number * episodes, dtype=np.int64),
        reflection=np.zeros(number * episodes, dtype=np.bool_),
        anchor=objects([""] * (number * episodes)),
        action=objects([words[a] for a in act.tolist()]),
        choices=objects([chances[k][: len(words[a])] for k, a in zip(knows, act, strict=True)]),
    )


def scores(game: Game, played: Played) -> Floats:
    """∇ log π of each step, shape (rollouts, episodes, 6): per kind of episode one parameter for
    looking without knowledge, and two, for looking and for the known door, with it."""
    result = np.zeros((*played.act.shape, 6))
    for knows in (0, 1):
        p = game.policy(bool(knows))
        for episode in range(game.episodes):
            at = 3 * int(episode >= game.free) + knows
            here = played.knows[:, episode] == knows
            act = played.act[here, episode]
            result[here, episode, at] = (act == 0) - p[0]
            if knows:
                result[here, episode, at + 1] = (act == 1) - p[1]
    return result


def gradients(advantages: Floats, score: Floats, size: int) -> Floats:
    """One gradient per group, shape (groups, 6)."""
    per_rollout = (advantages[..., None] * score).sum(axis=1)
    means: Floats = per_rollout.reshape(-1, size, per_rollout.shape[-1]).mean(axis=1)
    return means


def floor(game: Game, played: Played, size: int) -> Floats:
    """The exact value of each action, less that of its state, shape (rollouts, episodes)."""
    state, action = game.values()
    at = np.arange(game.episodes)
    exact: Floats = action[at, played.knows, played.act] - state[at, played.knows]
    return exact


def branched(table: StepTable, free: int, size: int, branches: int) -> Floats:
    """`trial` where `branches` adjacent rollouts share their free shots, shape (N,).

    A shared step is credited once, on the first of its rollouts, with the mean of its
    continuations against that of the group's other free shots; a later step's baseline is the mean
    over all other continuations of the group. Loss weights as these: shared steps 1 / free shots,
    others 1 / continuations, so that what is shared counts `branches` times here.
    """
    episodes = len(table.reward) // len(table.group)
    to_go = trial_returns(table, 1.0, 1.0)
    credit = np.zeros((len(table.group), episodes))
    by_rollout = to_go.reshape(-1, episodes)
    owner = np.arange(len(table.group)) // branches
    for episode in range(episodes):
        values = by_rollout[:, episode]
        keys = (np.arange(len(values)) // size).tolist()
        if episode >= free:
            others = leave_one_out(values, np.arange(len(values)), keys, values * 0)
            credit[:, episode] = values - others
            continue
        mean = values.reshape(-1, branches).mean(axis=1)[owner]
        first = np.arange(len(values)) % branches == 0
        credit[:, episode] = (mean - leave_one_out(values, owner, keys, values * 0)) * first
        credit[:, episode] *= branches
    return credit.ravel()


def ratio(one: Floats, other: Floats) -> tuple[float, float]:
    """Summed variance of `one` over that of `other`, both (groups, parameters) from the same
    groups or from independent ones, with half of its 95 % interval (delta method)."""
    a, b = (((x - x.mean(axis=0)) ** 2).sum(axis=1) for x in (one, other))
    value = a.mean() / b.mean()
    paired = np.std(a - value * b) if len(a) == len(b) else np.hypot(a.std(), value * b.std())
    return round(float(value), 3), round(float(1.96 * paired / np.sqrt(len(a)) / b.mean()), 3)


def measure(game: Game, groups: int, size: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """The figures of one game."""
    rng = np.random.default_rng(seed)
    played = play(game, rng, groups * size, None)
    table = table_of(game, played, size)
    score = scores(game, played)
    shape = played.act.shape

    def of(estimator: Callable[..., Floats]) -> Floats:
        return gradients(estimator(table).reshape(shape), score, size)

    grads = {name: of(ESTIMATORS[name]) for name in ("rloo", "trial", "trial_cv")}
    grads["floor"] = gradients(floor(game, played, size), score, size)
    result = {name: ratio(grads[name], grads["rloo"]) for name in ("trial", "trial_cv", "floor")}
    result["branches"] = _branches(game, grads["trial"], groups, size, rng)
    return result


def _branches(
    game: Game, plain: Floats, groups: int, size: int, rng: np.random.Generator, branches: int = 2
) -> tuple[float, float]:
    """Variance times environment steps of a group of `size` continuations, over that of `trial`."""
    if size % branches or size // branches < 2:
        raise SystemExit(f"--group-size must be a multiple of {branches} and at least 4")
    first = play(game, rng, groups * size // branches, None)
    shared = Played(*(np.repeat(x, branches, axis=0) for x in (first.knows, first.act)))
    played = play(game, rng, groups * size, shared)
    advantages = branched(table_of(game, played, size), game.free, size, branches)
    ours = gradients(advantages.reshape(played.act.shape), scores(game, played), size)
    value, half = ratio(ours, plain)
    steps = (game.free / branches + game.scored) / game.episodes
    return round(value * steps, 3), round(half * steps, 3)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=4000)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="a second, figures mean nothing")
    args = parser.parse_args(given)
    groups = 50 if args.quick else args.groups
    results = {}
    for name, (look, use) in POLICIES.items():
        for free, scored in ((1, 1), (1, 4), (1, 8), (3, 1)):
            game = Game(free, scored, look, use)
            result = measure(game, groups, args.group_size)
            results[f"{name}, {free} free, {scored} scored"] = result
            shown = "  ".join(f"{k} {v:.2f} ± {half:.2f}" for k, (v, half) in result.items())
            print(f"{name:5}  {free} free, {scored} scored:  {shown}", flush=True)
    print(json.dumps({"groups": groups, "group_size": args.group_size, "results": results}))


if __name__ == "__main__":
    main()
