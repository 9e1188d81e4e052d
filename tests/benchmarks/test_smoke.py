"""Each benchmark runs from beginning to end; its figures mean nothing here."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
KEYS = {
    "generation.py": {"ours_over_trl_tiny", "ours_over_floor", "ours_growth"},
    "training_step.py": {"ours_over_trl", "ours_seconds_rollouts", "ours_seconds_update"},
}


@pytest.mark.slow
@pytest.mark.parametrize("script", KEYS)
def test_quick_run(script, tmp_path):
    *before, last = quick_run(tmp_path, script)
    assert json.loads(last).keys() >= KEYS[script] | {"device"}
    assert any("sampled" in line and "threads" in line for line in before)


@pytest.mark.slow
def test_constrained_turns_are_as_long_as_free_ones_and_scored_as_sampled(tmp_path):
    result = json.loads(quick_run(tmp_path, "constrained.py")[-1])
    assert (result["constrained_tokens"], result["schema_tokens"]) == (2 * 5 * 6, 2 * 2 * 24)
    assert result["largest_logp_gap"] < 1e-4
    assert min(result["cpu_constrained_over_free"], result["cpu_schema_over_free"]) > 0


@pytest.mark.parametrize(
    ("case", "shared"),
    [
        ("steps", 3),
        pytest.param("thinking", 2, marks=pytest.mark.slow),
        pytest.param("quickstart", 1.2, marks=pytest.mark.slow),
        pytest.param("long", 3, marks=pytest.mark.slow),
    ],
)
def test_an_update_with_and_without_shared_prefixes(case, shared, monkeypatch, tmp_path, capsys):
    """A ratio is printed only if both gradients are equal."""
    monkeypatch.syspath_prepend(FOLDER)
    training_step = importlib.import_module("training_step")
    monkeypatch.setattr(training_step.common, "CACHE", tmp_path)
    monkeypatch.setattr(training_step.common, "set_up", lambda args: None)
    monkeypatch.setattr(sys, "argv", ["training_step.py", "--case", case, "--quick"])
    training_step.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["rows_tokens_read"] / result["distinct_tokens"] > shared
    assert {"forest_over_rows", "cpu_forest_over_rows", "forest_memory_mb"} <= result.keys()
    assert ("ours_over_trl" in result) == (case == "long")


@pytest.mark.slow
def test_storage(tmp_path):
    result = json.loads(quick_run(tmp_path, "storage.py")[-1])
    step = result["step"]
    assert result["start"]["rows"] == 2000
    assert 0 < step["cpu_store_seconds"] < step["cpu_seconds"]
    assert 0 < step["cpu_metrics_seconds"] < step["cpu_seconds"]


def test_a_stored_generation(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    figures = importlib.import_module("storage").store(16, 256)
    assert figures["tokens"] == 16 * 256
    assert 0 < figures["share_of_7.6B"] < figures["share_of_0.5B"]


def test_a_bare_textarena_game(monkeypatch):
    pytest.importorskip("textarena")
    monkeypatch.syspath_prepend(FOLDER)
    environments = importlib.import_module("environments")
    monkeypatch.setattr(environments, "ROUNDS", 1)
    figures = environments.against_bare("GuessTheNumber")
    assert figures["textarena_GuessTheNumber_ours_per_bare"] > 0


def quick_run(cache, script):
    """The lines that a benchmark prints in its quick form."""
    command = [sys.executable, "-W", "ignore", FOLDER / script, "--quick", "--threads", "1"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"AGENTSGYM_BENCH_CACHE": str(cache)},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip().splitlines()
