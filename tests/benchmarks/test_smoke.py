"""Each benchmark runs from beginning to end; its figures mean nothing here."""

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


@pytest.mark.parametrize("script", KEYS)
def test_quick_run(script, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(FOLDER / script), "--quick", "--threads", "1"],
        capture_output=True,
        text=True,
        env=os.environ | {"AGENTSGYM_BENCH_CACHE": str(tmp_path)},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *before, last = done.stdout.strip().splitlines()
    result = json.loads(last)
    assert result.keys() >= KEYS[script] | {"device"}
    assert any("sampled" in line and "threads" in line for line in before)
