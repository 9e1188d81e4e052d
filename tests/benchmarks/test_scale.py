"""The benchmark of many sessions: it runs, and its latencies and occupancy are what it says."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import scale


def test_quick_run_prints_every_figure_of_sessions(capsys):
    scale.main(["sessions", "--quick"])

    result = json.loads(capsys.readouterr().out.splitlines()[-1])

    assert result.keys() >= {"device", "mean_latency_ms", "overhead_growth"}
    for figures in result["sessions"].values():
        assert figures["overhead_us"] > 0
        assert 0 < figures["occupancy"] <= 1


def test_quick_run_prints_what_a_step_costs_over_http(capsys):
    scale.main(["http", "--quick"])

    assert json.loads(capsys.readouterr().out.splitlines()[-1])["http_us"] > 0


def test_occupancy_counts_only_the_time_with_a_session_waiting():
    window = scale.Window(capacity=2, sessions=3)
    window.request(0.0, 4.0, first=True)
    window.request(1.0, 3.0, first=True)  # both places have begun
    window.request(5.0, 9.0, first=True)  # the last one begins

    # From 1 to 5 two places could have been busy for 4 seconds: 3 and 2 were.
    assert window.occupancy() == pytest.approx(5 / 8)

    window = scale.Window(capacity=2, sessions=2)  # no session waits
    window.request(0.0, 1.0, first=True)
    window.request(0.5, 1.0, first=True)
    assert window.occupancy() is None
