"""The door to verifiers: `make test-doors DOOR=verifiers` runs these with the package."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("verifiers", reason="needs verifiers (make test-doors DOOR=verifiers)")
# verifiers imports a taskset by its name.
sys.path.append(str(Path(__file__).parents[3] / "examples/verifiers"))
