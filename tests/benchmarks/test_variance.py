"""The benchmark of the gradient's variance: it runs, and its branching estimates the gradient."""

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from credit.enumerable import compare, spelled_process, table_of_groups

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "variance.py"


@pytest.fixture(scope="module")
def variance():
    spec = importlib.util.spec_from_file_location("variance", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_quick_run(variance, capsys):
    variance.main(["--quick"])
    *lines, last = capsys.readouterr().out.strip().splitlines()
    found = json.loads(last)
    assert len(found["results"]) == len(lines) == 8
    for figures in found["results"].values():
        assert set(figures) == {"trial", "trial_cv", "floor", "branches"}


def test_the_exact_values_are_those_of_play(variance):
    game = variance.Game(1, 2, 0.3, 0.8)
    played = variance.play(game, np.random.default_rng(0), 40_000, None)
    state, _ = game.values()
    mean = played.reward[:, 1:].mean()
    assert mean == pytest.approx(state[0, 0], abs=4 * 0.5 / 200)


def test_branching_at_a_free_shot_is_unbiased(variance):
    """Every group of two free shots with two continuations each, weighted by its probability."""
    process = spelled_process((0.0, 1.0))
    chance = process.probabilities()
    begun = [tuple(m.action for m in t if m.episode == 0) for t in process.trajectories]
    pairs, weights = [], []
    for prefix in sorted(set(begun)):
        own = [k for k, b in enumerate(begun) if b == prefix]
        reached = chance[own].sum()
        for one, two in itertools.product(own, repeat=2):
            pairs.append((one, two))
            weights.append(chance[one] * chance[two] / reached)
    joint = list(itertools.product(range(len(pairs)), repeat=2))
    chances = np.array([weights[a] * weights[b] for a, b in joint])
    assert chances.sum() == pytest.approx(1.0)
    table, tokens = table_of_groups(process, [pairs[a] + pairs[b] for a, b in joint])
    credit = variance.branched(table, free=1, size=4, branches=2)
    weighted = chances[table.group[table.rollout]] * credit / 4
    per_pair = np.zeros_like(process.theta)
    np.add.at(per_pair, (tokens.state, tokens.action), weighted[tokens.step])
    policy = np.exp(process.log_policy)
    gradient = per_pair - per_pair.sum(axis=1, keepdims=True) * policy
    assert compare(gradient, process.true_gradient()).error < 1e-9
