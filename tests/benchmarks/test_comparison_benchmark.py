"""benchmarks/comparison.py runs; its figures mean nothing here."""

import importlib.util
import json
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/comparison.py"


def test_a_small_run(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("comparison_benchmark", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    small = ["--equal", "2", "--different", "2", "--tasks", "10", "--rollouts", "2"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *small])
    script.main()
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]["repetitions"] == found["ten_points"]["repetitions"] == 2
    assert (
        0 < found["ten_points"]["announced"] <= found["ten_points"]["announced_for_these_chances"]
    )
