"""The benchmark of the gradient's variance: it runs, and its branching estimates the gradient."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

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
    report = json.loads(last)
    assert len(report["results"]) == len(lines) == 8
    for figures in report["results"].values():
        assert set(figures) == {"trial", "trial_cv", "floor", "branches"}


def test_the_exact_values_are_those_of_play(variance):
    game = variance.Game(1, 2, 0.3, 0.8)
    played = variance.play(game, np.random.default_rng(0), 40_000, None)
    state, _ = game.values()
    mean = played.reward[:, 1:].mean()
    assert mean == pytest.approx(state[0, 0], abs=4 * 0.5 / 200)
