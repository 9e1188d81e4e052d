"""The bandit: its players as numbers, by hand and by other means; episodes, outcomes, notes."""

from fractions import Fraction

import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs.bandit import BanditEnv, FiniteHorizon
from agentsgym.envs.known_game import episode_weights
from bandit_players import (
    best_policy,
    expected_successes,
    thompson_policy,
    weighted,
)


def uniform(pulled, counts):
    return [1 / len(counts)] * len(counts)


def test_two_arms_two_pulls_by_hand():
    # Pull one (1/2). After a success stay (2/3), after a failure change (1/2): 13/12 of 2 pulls.
    player = FiniteHorizon(2, (1 / 2, 1 / 2))
    assert player.value() == pytest.approx(13 / 24)
    assert player.action_values(((1, 0), (0, 0)), 1) == pytest.approx([2 / 3 / 2, 1 / 2 / 2])
    assert player.best_arm(((1, 0), (0, 0)), 1) == 0
    assert player.best_arm(((0, 1), (0, 0)), 1) == 1
    assert expected_successes(best_policy(player), 2, arms=2) == pytest.approx([1 / 2, 7 / 12])


def test_two_arms_two_pulls_behind_a_free_shot_by_hand():
    # Try both arms in the free shot. Both won (1/4): 25/18 of 2; both lost (1/4): 13/18;
    # one won (1/2): 4/3. Together 43/36 of 2 pulls.
    player = FiniteHorizon(2, (0.0, 0.0, 1 / 2, 1 / 2))
    assert player.value() == pytest.approx(43 / 72)
    assert player.value(((1, 0), (1, 0)), 2) == pytest.approx(25 / 36)
    assert player.value(((0, 1), (0, 1)), 2) == pytest.approx(13 / 36)
    assert player.value(((1, 0), (0, 1)), 2) == pytest.approx(4 / 6)


def test_a_free_shot_makes_the_player_explore():
    """Arm 0 won 2 of 3, arm 1 was never pulled; one pull is scored, by hand with a free one first.

    Scored alone: 3/5 against 1/2. With a free pull, arm 0 gives 3/5·2/3 + 2/5·1/2 = 3/5, arm 1
    gives 1/2·2/3 + 1/2·3/5 = 19/30.
    """
    counts = ((2, 1), (0, 0))
    greedy, curious = FiniteHorizon(2, (1.0,)), FiniteHorizon(2, (0.0, 1.0))
    assert greedy.action_values(counts, 0) == pytest.approx([3 / 5, 1 / 2])
    assert curious.action_values(counts, 0) == pytest.approx([3 / 5, 19 / 30])
    assert (greedy.best_arm(counts, 0), curious.best_arm(counts, 0)) == (0, 1)


def test_thompson_two_arms_two_pulls_by_hand():
    # After a success it stays with 2/3: 2/3·2/3 + 1/3·1/2 = 11/18; after a failure with 1/3:
    # 1/3·1/3 + 2/3·1/2 = 8/18.
    weights = (1 / 2, 1 / 2)
    successes = expected_successes(thompson_policy(weights), 2, arms=2)
    assert successes == pytest.approx([1 / 2, 19 / 36])
    assert weighted(successes, weights) == pytest.approx(37 / 72)


def trial_weights(pulls, episodes, free):
    return [share / pulls for share in episode_weights(episodes, free) for _ in range(pulls)]


def brute_force(arms: int, weights: list[Fraction]) -> Fraction:
    """The same optimum by plain recursion over histories, in fractions."""

    def value(history: tuple[tuple[int, bool], ...]) -> Fraction:
        t = len(history)
        if t == len(weights):
            return Fraction(0)
        best = Fraction(-1)
        for arm in range(arms):
            wins = sum(won for a, won in history if a == arm)
            p = Fraction(wins + 1, sum(a == arm for a, _ in history) + 2)
            won, lost = value((*history, (arm, True))), value((*history, (arm, False)))
            best = max(best, p * (weights[t] + won) + (1 - p) * lost)
        return best

    return value(())


@pytest.mark.parametrize(("arms", "pulls", "free"), [(2, 2, 1), (3, 2, 1), (2, 3, 0)])
def test_dynamic_programme_against_plain_recursion(arms, pulls, free):
    weights = trial_weights(pulls, 2, free)
    exact = brute_force(arms, [Fraction(w).limit_denominator(1000) for w in weights])
    assert FiniteHorizon(arms, weights).value() == pytest.approx(float(exact))


@pytest.mark.parametrize(("episodes", "free"), [(1, 0), (2, 1)])
def test_the_order_of_players(episodes, free):
    """Two arms, eight pulls: optimal beats Thompson beats chance."""
    weights = trial_weights(8, episodes, free)
    player = FiniteHorizon(2, weights)
    total = 8 * episodes
    assert weighted(
        expected_successes(best_policy(player), total, arms=2), weights
    ) == pytest.approx(player.value())
    sampled = weighted(expected_successes(thompson_policy(weights), total, arms=2), weights)
    assert 0.5 < sampled < player.value() < 2 / 3  # E[the better of two arms] = 2/3
    assert weighted(expected_successes(uniform, total, arms=2), weights) == pytest.approx(0.5)


def test_weights():
    assert episode_weights(3, 1) == (0.0, 0.5, 0.5)
    trial = {"episodes_per_trial": 3, "free_shots": 1, "max_steps_per_episode": 2}
    assert make(**trial, carry="full").best_play.weights == (0.0, 0.0, 0.25, 0.25, 0.25, 0.25)
    assert make(**trial).best_play.weights == (0.5, 0.5)


# -- the environment -----------------------------------------------------------------------------


def make(**config):
    return BanditEnv(None, config)


def play(env, task, agent):
    rollout = env.run_trial([task], agent).rollouts[0]
    assert rollout.error is None
    return rollout


def outcomes(episode):
    return [step.info.get("success") for step in episode.steps if step.kind == "action"]


def test_what_a_pull_earns_and_tells():
    env = make(max_steps_per_episode=2)
    rollout = play(env, {"probabilities": [1, 0, 0.5]}, ScriptedAgent(["Red.", "green"]))
    assert [step.reward for step in rollout.episodes[0].steps] == [0.5, 0.0]
    assert rollout.episodes[0].stop_reason == "pulls_used"
    infos = [step.info for step in rollout.episodes[0].steps]
    assert [info["metrics"]["regret"] for info in infos] == [0.0, 1.0]
    assert [info["win"] for info in infos] == [True, False]


def test_malformed_actions_waste_a_pull():
    env = make(max_steps_per_episode=3)
    task = {"probabilities": [1, 0.5, 0.5]}
    rollout = play(env, task, ScriptedAgent(["purple", "<think>or</think>red", "red green"]))
    steps = rollout.episodes[0].steps
    assert [step.malformed for step in steps] == [True, False, True]
    assert rollout.final_reward == pytest.approx(1 / 3)
    assert steps[1].observation == "No such arm."
    assert steps[0].info["metrics"] == {"regret": 1.0, "best_arm": 0.0}


def test_outcomes_depend_on_the_task_alone():
    """Common random numbers: the n-th pull of an arm ends alike whatever came between."""
    env = make(max_steps_per_episode=4)
    first = play(env, {"seed": 5}, ScriptedAgent(["red", "green", "red", "green"]))
    second = play(env, {"seed": 5}, ScriptedAgent(["green", "green", "red", "red"]))
    a, b = outcomes(first.episodes[0]), outcomes(second.episodes[0])
    assert [a[0], a[2]] == b[2:] and [a[1], a[3]] == b[:2]
    again = play(make(max_steps_per_episode=4), {"seed": 5}, ScriptedAgent(["red", "green"] * 2))
    assert outcomes(again.episodes[0]) == a


def test_episodes_of_a_trial_have_the_same_arms_and_fresh_noise():
    env = make(max_steps_per_episode=12, episodes_per_trial=3)
    rollout = play(env, {"probabilities": [0.5] * 3}, ScriptedAgent(["red"]))
    played = [tuple(outcomes(episode)) for episode in rollout.episodes]
    assert len(set(played)) == 3
    again = play(env, {"probabilities": [0.5] * 3}, ScriptedAgent(["red"]))
    assert [tuple(outcomes(episode)) for episode in again.episodes] == played


def test_notes_hold_all_counts_of_the_trial():
    env = make(max_steps_per_episode=2, carry="summary", episodes_per_trial=3)
    rollout = play(env, {"probabilities": [1.0, 0.0, 0.0]}, env.optimal_agent())
    notes = [s.action for e in rollout.episodes for s in e.steps if s.kind == "reflection"]
    assert notes == [
        "red 2 won 0 lost, green 0 won 0 lost, blue 0 won 0 lost",
        "red 4 won 0 lost, green 0 won 0 lost, blue 0 won 0 lost",
    ]
