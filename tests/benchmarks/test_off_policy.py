"""The exact gradients of experiments/off_policy.py, where they are known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments.estimators.board import CHALLENGES

pytest.importorskip("trl")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "experiments"))
    import off_policy

    return off_policy


def by_name(script, process, sampler):
    figures = script.exact(process, sampler)
    return {variant.name: one for variant, one in zip(script.VARIANTS, figures, strict=True)}


@pytest.mark.parametrize("name", ["late reward", "variable length"])
def test_on_policy_no_variant_changes_anything(script, name):
    process = CHALLENGES[name].process
    for one in by_name(script, process, process).values():
        assert (one.masked, one.distance) == (0.0, 0.0)
        assert one.variance == pytest.approx(1.0)
        assert one.error == pytest.approx(by_name(script, process, process)["no correction"].error)


def test_the_full_ratio_is_unbiased_in_one_step_and_a_truncated_one_or_a_mask_is_not(script):
    process = CHALLENGES["many actions"].process
    noise = np.random.default_rng(0).normal(size=process.theta.shape)
    found = by_name(script, process, replace(process, theta=process.theta + 2 * noise))
    assert found["ratio in full"].error < 1e-9
    assert found["truncated at 2"].error > 1e-3 and found["no correction"].error > 1e-2
    assert found["+ icepop"].masked > 0 and found["+ icepop"].error > 1e-3
