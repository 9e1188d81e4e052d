"""Best play with and without exploring: against enumeration, by hand, and by play."""

import itertools

import pytest

from agentsgym.envs.exploration.best_play import BestPlayer, Claim, Inform, Plan
from agentsgym.envs.exploration.env import ExploreEnv
from agentsgym.envs.known_game import episode_weights
from expectations import RandomPlayer, explored

LOOK = ((0, 1, 2),)
BITS = ((0, 1, 0, 1), (0, 0, 1, 1))
TRY = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def enumerated(plan, *, informs=True):
    """The best expected score, by trying all moves at all histories. It keeps the probability of
    each hidden state itself, never counts or posteriors."""
    values = list(itertools.product(range(plan.choices), repeat=plan.facts))
    moves = [Claim(v) for v in range(plan.choices)]
    if informs:
        moves += [Inform(f, q) for f in range(plan.facts) for q in range(len(plan.queries))]

    def chance(move, fact, state, seen):
        """Probability of an observation of a move in a hidden state."""
        if isinstance(move, Claim):
            return float((state[fact] == move.value) == seen)
        true = plan.queries[move.query][state[move.fact]]
        return 1 - plan.noise if true == seen else plan.noise / (plan.answers - 1)

    def value(episode, step, fact, weights):
        return max(after(episode, step, fact, weights, move) for move in moves)

    def after(episode, step, fact, weights, move):
        claim, total = isinstance(move, Claim), 0.0
        for seen in (False, True) if claim else range(plan.answers):
            left = {s: w * chance(move, fact, s, seen) for s, w in weights.items()}
            left = {s: w for s, w in left.items() if w}
            if not left:
                continue
            paid = (plan.right if seen else plan.wrong) if claim else -plan.look_cost
            total += sum(left.values()) * plan.weights[episode] * paid
            over = claim or step + 1 == plan.actions(episode)
            total += start(episode + 1, left) if over else value(episode, step + 1, fact, left)
        return total

    def start(episode, weights):
        if episode == len(plan.weights):
            return 0.0
        return sum(value(episode, 0, f, weights) for f in range(plan.facts)) / plan.facts

    return start(0, dict.fromkeys(values, 1 / len(values)))


PLANS = {
    "one look": Plan(LOOK, episode_weights(2, 1)),
    "noisy looks": Plan(LOOK, episode_weights(3, 2), noise=0.2),
    "scored first episodes, a cost": Plan(LOOK, episode_weights(3), look_cost=0.3, wrong=-0.5),
    "several steps": Plan(LOOK, episode_weights(2), steps=2, noise=0.25, look_cost=0.05),
    "two facts": Plan(LOOK, episode_weights(2, 1), facts=2, noise=0.1),
    "bits": Plan(BITS, episode_weights(3, 2)),
    "noisy bits": Plan(BITS, episode_weights(2), steps=2, noise=0.2, look_cost=0.1),
    "a rule": Plan(TRY, episode_weights(2, 1), noise=0.1),
}


@pytest.mark.parametrize("informs", [True, False])
@pytest.mark.parametrize("name", PLANS)
def test_best_play_equals_enumeration_over_all_histories(name, informs):
    plan = PLANS[name]
    player = BestPlayer(plan, informs=informs)
    assert player.value() == pytest.approx(enumerated(plan, informs=informs), abs=1e-12)
    result = explored(plan, player)
    assert result.score == pytest.approx(player.value(), abs=1e-12)
    assert informs or not any(result.informing)


@pytest.mark.parametrize(
    ("config", "best", "never"),
    [
        ({}, 1, 1 / 4),
        ({"game": "switches"}, 1, 1 / 2),
        ({"free_shots": 0}, (0 + 1) / 2, (1 / 8 + 1 / 4) / 2),
        ({"episodes_per_trial": 4, "free_shots": 0}, 3 / 4, (1 + 2 + 3 + 4) / 8 / 4),
        ({"right_reward": 0.9, "wrong_reward": 0.1}, 0.9, 0.1 + 0.8 / 4),
        ({"max_steps_per_episode": 2}, 1, 1 / 4),
        ({"facts": 2}, (1 + 1 / 8) / 2, (1 / 4 + 1 / 8) / 2),
        ({"noise": 0.3, "choices": 6, "episodes_per_trial": 3, "free_shots": 2}, 0.76, 1 / 2),
        ({"carry": "none"}, 1 / 8, 1 / 8),
        ({"episodes_per_trial": 2, "free_shots": 0, "look_cost": 2.0}, 3 / 16, 3 / 16),
    ],
)
def test_numbers_by_hand(config, best, never):
    env = ExploreEnv(None, config)
    assert env.player().value() == pytest.approx(best)
    assert env.player(informs=False).value() == pytest.approx(never)


def test_expectations_of_the_best_and_the_random_player():
    plan = ExploreEnv().plan
    best = explored(plan, BestPlayer(plan))
    assert (best.rewards, best.informing) == ((0.0, 1.0), (1.0, 0.0))
    at_random = explored(plan, RandomPlayer(plan))
    assert at_random.rewards == pytest.approx((1 / 9, 1 / 9))
    assert at_random.informing == pytest.approx((1 / 9, 1 / 9))
