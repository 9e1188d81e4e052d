"""The games of experiments/strangers: their best players play best, and no constant action does."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent / "experiments" / "strangers"
sys.path.append(str(HERE))

import yardsticks  # noqa: E402

ENUMERATED = {"cards": 0.8594, "vending": 0.92, "negotiation": 0.6, "dice": 0.4070}


@pytest.mark.parametrize("name", yardsticks.GAMES)
def test_the_best_player_earns_what_is_known_and_more_than_any_constant_action(name):
    env = yardsticks.made(name)
    best, (low, _) = yardsticks.best(env, 40), yardsticks.constant(env, 12)
    assert low < 0.7 * best
    if name not in ENUMERATED and name != "robot":
        assert best == 1.0
    elif name == "robot":
        tasks = env.get_eval_dataset()["task_data"][:40]
        assert best == sum(map(env.reference_score, tasks)) / 40


@pytest.mark.parametrize("name", ENUMERATED)
def test_the_best_play_by_enumeration_is_what_the_best_player_earns(name):
    """Over all tasks, of which the held-out ones are a sample."""
    exact = yardsticks.EXACT[name]()
    assert exact == pytest.approx(ENUMERATED[name], abs=5e-4)
    assert yardsticks.best(yardsticks.made(name)) == pytest.approx(exact, abs=0.03)
