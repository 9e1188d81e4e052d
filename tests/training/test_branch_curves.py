"""The arithmetic of experiments/branch_curves.py."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest


@pytest.fixture
def curves(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "experiments"))
    import branch_curves

    return branch_curves


def test_the_reward_of_a_generation_counts_each_trunk_once(curves):
    """The second trunk was too short for its branch, which was played from the beginning."""
    played = [(1.0, 0), (0.0, 2), (1.0, 0), (0.0, 0)]
    rollouts = [SimpleNamespace(final_reward=r, replayed=n) for r, n in played]
    assert curves.mean_reward(rollouts, 2) == pytest.approx(0.75)
    assert curves.mean_reward(rollouts, 1) == pytest.approx(0.5)


def test_curves_are_compared_until_equal_limits(curves):
    """Two updates of 4 and 6 actions, each with 2 repeated steps."""
    curve = np.array([[4, 2, 0.5, 1.0], [6, 2, 1.0, 3.0]])
    assert curves.axes_of(curve).tolist() == [[6, 8], [4, 6], [1, 3]]
    found = curves.measures(curve, (14, 8, 4))
    assert found["environment steps"] == pytest.approx((6 * 0.5 + 8) / 14)
    assert found["actions"] == pytest.approx((4 * 0.5 + 4) / 8)
    assert found["actions, last quarter"] == pytest.approx(1.0)
    assert found["seconds"] == pytest.approx((0.5 + 3) / 4)


def test_a_difference_is_shown_if_its_interval_has_no_zero(curves):
    assert curves.shown([0.1, 0.1, 0.11]) == ""
    assert curves.shown([0.1, -0.1, 0.2]) == " (no difference shown)"
    assert curves.shown([0.1]) == " (no difference shown)"
