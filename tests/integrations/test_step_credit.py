"""Advantages per token from action masks and step rewards, by hand. (No Axolotl is needed.)"""

import numpy as np
import pytest

from agentsgym.agents import ScriptedAgent
from agentsgym.integrations.axolotl.step_credit import (
    Actions,
    action_advantages,
    check_step_estimator,
)
from agentsgym.integrations.trl.rollouts import step_rewards
from helpers import DigitEnv

MASK = [1, 1, 0, 0, 1, 0, 1, 1, 1]


def test_actions_are_runs_of_the_mask():
    actions = Actions.of(MASK, [1, 0, 2], "rollout 0")
    assert actions.spans == ((0, 2), (4, 5), (6, 9)) and actions.rewards == (1.0, 0.0, 2.0)
    placed = actions.placed([3.0, -1.0, 0.5], 11)
    assert placed.tolist() == [3, 3, 0, 0, -1, 0, 0.5, 0.5, 0.5, 0, 0]


def test_a_reward_per_action_is_needed():
    with pytest.raises(ValueError, match="rollout 7: action_mask marks 3 actions, "):
        Actions.of(MASK, [1.0, 2.0], "rollout 7")


def test_a_rollout_without_actions_takes_no_part():
    """A failed rollout is one masked token; its rewards, if there are any, are not read."""
    failed = Actions.of([0], [1.0, 2.0], "rollout 1")
    assert failed == Actions((), ())
    one, two = (Actions.of([1], [r], "r") for r in (1.0, 0.0))
    advantages = action_advantages([one, failed, two], 3, "rloo", {})
    assert advantages == [[1.0], [], [-1.0]]


def test_returns_to_go_against_the_others_at_the_same_step():
    """Groups of two: 1 + 0 + 2 and 0 + 1, then two equal ones."""
    rollouts = [
        Actions.of([1, 0, 1, 0, 1], [1, 0, 2], "a"),
        Actions.of([1, 0, 1], [0, 1], "b"),
        Actions.of([1], [5], "c"),
        Actions.of([1], [5], "d"),
    ]
    advantages = action_advantages(rollouts, 2, "step_return", {})
    # G of a: 3, 2, 2; of b: 1, 1. No other rollout reached a third step.
    np.testing.assert_allclose(advantages[0], [3 - 1, 2 - 1, 2])
    np.testing.assert_allclose(advantages[1], [1 - 3, 1 - 2])
    assert advantages[2:] == [[0.0], [0.0]]


@pytest.mark.parametrize("name", ["gigpo", "trial_cv", "reward"])
def test_estimators_that_need_more_are_refused(name):
    with pytest.raises(ValueError, match=f"estimator '{name}' (needs|gives)"):
        check_step_estimator(name, {})


def test_step_rewards_of_a_trial_are_what_counts():
    """The free shot was won and is not trained on; two scored episodes count a half each."""
    config = {"episodes_per_trial": 3, "free_shots": 1, "carry": "full"}
    agent = ScriptedAgent(["7", "x", "7", "7"])
    (rollout,) = DigitEnv(None, config).run_trial([{"seed": 0}], agent).rollouts
    assert [len(episode.steps) for episode in rollout.episodes] == [1, 2, 1]
    assert step_rewards(rollout) == [0.0, 0.0, 0.5, 0.5] and rollout.final_reward == 1.0
