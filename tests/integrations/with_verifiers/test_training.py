"""The run of examples/verifiers; docs/integrations/openenv-verifiers-inspect.md shows its curve."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_taskset_is_learned(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "agentsgym", "train", "guess.yaml", "--output", str(tmp_path)],
        cwd=ROOT / "examples/verifiers",
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=True,
    )
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["after"]["reward"] > summary["before"]["reward"] + 0.15
