"""benchmarks/openenv_steps.py runs from beginning to end; its figures mean nothing here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("openenv")

from helpers import child_environment

pytestmark = pytest.mark.doors
ROOT = Path(__file__).parents[2]


def test_quick_run():
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/openenv_steps.py"), "--quick"],
        capture_output=True,
        text=True,
        timeout=200,
        env=child_environment(ROOT / "src"),
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    for way in ("one_client", "many_clients", "door"):
        assert figures[f"{way}_over_native"] > 0
