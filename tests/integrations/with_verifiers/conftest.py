"""The door to verifiers: `make test-verifiers` runs these with the package."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("verifiers", reason="needs verifiers (make test-verifiers)")
# verifiers imports a taskset by its name.
sys.path.append(str(Path(__file__).parents[3] / "examples/verifiers"))
