"""benchmarks/storage.py runs; its figures mean nothing here."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

pytest.importorskip("trl")

import storage


def test_a_generation_is_stored_and_its_figures_computed():
    figures = storage.store(16, 256)
    assert figures["tokens"] == 16 * 256
    assert 0 < figures["share_of_7.6B"] < figures["share_of_0.5B"]
