"""docs/run-directory.md names every key that a run writes, and no other."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agentsgym.runs import load_config, train_run
from agentsgym.runs.files import RunDirectory

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "run-directory.md").read_text(encoding="utf-8")
SOURCES = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


def documented(start: str) -> set[str]:
    """The keys in the first column of the first table behind a text of the page."""
    table = re.search(r"^\|.*?(?=\n\n)", PAGE.partition(start)[2], re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \|", table[0], re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`([^`]+)`", row)}


METRICS = documented("\n## metrics.jsonl\n")
LINE = documented("one.rollout, one.phase, one.step, one.advantages\n```\n")
SUMMARY = documented("\n## summary.json\n")
FIGURES = documented("The keys of an evaluation:")


def paths(value, prefix="") -> set[str]:
    """The keys of an object and of the objects in its lists: `episodes[].steps[].reward`."""
    keys = set()
    for key, inner in value.items():
        members = inner if isinstance(inner, list) else []
        objects = [member for member in members if isinstance(member, dict)]
        below = [paths(member, f"{prefix}{key}[].") for member in objects]
        keys |= set().union(*below) if below else {prefix + key}
    return keys


def unfold(key: str, metrics: set[str]) -> str | None:
    """The documented name of a key in metrics.jsonl."""
    for name in METRICS - {"<metric>", "eval_<figure>", "env/<name>/<figure>"}:
        if re.fullmatch(re.sub(r"<\w+>", r"[^/]+", name), key):
            return name
    if key in metrics:
        return "<metric>"
    figure = key.removeprefix("eval_")
    return "eval_<figure>" if figure != key and unfold(figure, metrics) else None


@pytest.fixture
def run(workplace) -> RunDirectory:
    """A training with evaluations, a reference model and trials of two episodes."""
    settings = {
        "env_config.episodes_per_trial": 2,
        "train.max_steps": 2,
        "train.per_device_train_batch_size": 4,
        "train.num_generations": 2,
        "train.eval_strategy": "steps",
        "train.eval_steps": 1,
        "train.beta": 0.1,
        "eval.rollouts": 4,
    }
    train_run(load_config("toy.yaml", settings))
    return RunDirectory(workplace / "runs/toy")


def test_every_key_is_documented_and_every_documented_key_is_written(run):
    lines = [json.loads(text) for text in run.metrics.read_text().splitlines()]
    keys = {key for line in lines for key in line}
    names = {key: unfold(key, {"letters"}) for key in keys}
    assert {key for key, name in names.items() if name is None} == set()
    # What such a training cannot show stands at least in the sources.
    for name in METRICS - set(names.values()) - {"env/<name>/<figure>", "metrics/<metric>"}:
        pattern = re.sub("<(.*)>", r"{\1}", name)  # the source has "template_breaks/{what}"
        assert f'"{pattern}"' in SOURCES or f".{pattern} " in SOURCES, name
    rows = [row for _, _, path in run.rollout_files() for row in pq.read_table(path).to_pylist()]
    assert set().union(*map(paths, rows)) == LINE
    summary = json.loads(run.summary.read_text())
    assert set(summary) == SUMMARY
    assert set(summary["before"]) == set(summary["after"]) == FIGURES
