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
    from agentsgym.runs.task_files import open_tasks

    monkeypatch.setattr(common, "CACHE", tmp_path)
    lines, table = (
        open_tasks("data.train", str(storage._written(kind, 300))) for kind in ("jsonl", "arrow")
    )
    assert list(lines) == list(table) and len(lines) == 300


@pytest.mark.slow
def test_a_trainer_starts_on_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "CACHE", tmp_path)
    found = storage.start_here(storage._written("jsonl", 300))
    assert found["seconds"] > 0 and found["peak_mb"] > found["anonymous_mb"] > 0
