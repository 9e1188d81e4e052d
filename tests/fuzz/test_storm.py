"""Trainings that are killed or hit by faults; their long versions are `make fuzz`'s."""

import pytest

from fuzz import faults
from fuzz.kills import kill_runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_a_killed_training_goes_on_as_if_nothing_had_happened(tmp_path) -> None:
    report = kill_runs(tmp_path, kills=2, steps=6, seed=0)
    assert report["killed"] == 2 and report["different"] == [] and report["processes_left"] == 0


def test_a_training_in_a_storm_loses_only_what_was_hit(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["faults", "--steps", "20"])
    assert faults.main() == 0, capsys.readouterr().out
