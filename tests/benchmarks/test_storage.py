"""benchmarks/storage.py runs; its figures mean nothing here."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

pytest.importorskip("trl")

import common
import storage


def test_a_generation_is_stored_and_its_figures_computed():
    found = storage.store(16, 256)
    assert found["tokens"] == 16 * 256
    assert 0 < found["share_of_7.6B"] < found["share_of_0.5B"]


def test_files_of_tasks_have_equal_rows(tmp_path, monkeypatch):
    from agentsgym.runs.from_config import open_tasks

    monkeypatch.setattr(common, "CACHE", tmp_path)
    lines, table = (
        open_tasks("data.train", str(storage._written(kind, 300))) for kind in ("jsonl", "arrow")
    )
    assert list(lines) == list(table) and len(lines) == 300
