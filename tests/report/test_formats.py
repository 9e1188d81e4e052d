"""Versions of stored files: what 0.1 wrote is read, what a newer version wrote is refused."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from agentsgym.runs.files import (
    NewerFormat,
    RunDirectory,
    formats,
    read_lines,
    read_metrics,
    read_summary,
)
from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.files.formats import METRICS, ROLLOUTS, SUMMARY, Format

OLD = Path(__file__).parent / "data" / "run-0.1"
"""A run of two steps that agentsgym 0.1 left behind, without its models."""


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    """A copy of the run of 0.1."""
    shutil.copytree(OLD, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def edit(path: Path, **values):
    """Set keys of the last record of a file of JSON lines or of one object."""
    zipped = path.suffix == ".gz"
    text = gzip.decompress(path.read_bytes()).decode() if zipped else path.read_text()
    lines = [text] if path.suffix == ".json" else text.splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | values)
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if zipped else data)


def test_the_summary_of_0_1_is_read_with_its_clusters():
    summary = read_summary(OLD / "summary.json")
    assert (summary.before.clusters, summary.after.clusters) == (4, 4)
    assert (summary.before.win_rate, summary.after.win_rate, summary.steps) == (0.625, 0.5, 2)
    with pytest.warns(DeprecationWarning, match="Figures.clusters"):
        assert summary.before.secrets == 4


def test_each_environments_figures_of_0_1_are_converted_too(tmp_path):
    data = json.loads((OLD / "summary.json").read_text())
    data["after"]["environments"] = {"A": dict(data["after"])}
    (tmp_path / "summary.json").write_text(json.dumps(data))
    assert read_summary(tmp_path / "summary.json").after.environments["A"].clusters == 4


def test_a_summary_that_is_written_again_has_the_current_version(tmp_path):
    path = tmp_path / "summary.json"
    read_summary(OLD / "summary.json").write(path)
    assert json.loads(path.read_text())["schema"] == SUMMARY.version == 4
    assert read_summary(path) == read_summary(OLD / "summary.json")


def test_the_metrics_of_0_1_are_read_and_gone_on_with(run):
    from agentsgym.runs.files import MetricsFile

    old = list(read_metrics(run.metrics))
    assert [(line["step"], line["phase"]) for line in old] == [
        (1, "train"), (1, "eval"), (2, "train"), (2, "eval")
    ]  # fmt: skip
    MetricsFile(run.metrics).drop_after(1)
    MetricsFile(run.metrics).append("train", 2, {"reward": 0.5})
    texts = [json.loads(text) for text in run.metrics.read_text().splitlines()]
    assert [text["schema"] for text in texts] == [METRICS.version] * 3
    assert list(read_metrics(run.metrics))[:2] == old[:2]


def test_the_rollouts_of_0_1_are_read_in_full():
    lines = list(read_lines(OLD))
    assert [(line.phase, line.step) for line in lines[::4]] == [
        ("before", 0), ("train", 0), ("train", 1), ("eval", 1), ("eval", 2), ("after", 2)
    ]  # fmt: skip
    assert {line.dataset for line in lines} == {None}
    for line in lines:
        assert (line.advantages is not None) == (line.phase == "train")
        assert line.rollout.agent_tokens == sum(len(e.steps) for e in line.rollout.episodes) * 6
        rewards = [episode.reward for episode in line.rollout.episodes]
        assert len(rewards) == 2 and line.rollout.final_reward == sum(rewards) / 2


@pytest.mark.parametrize("kind", ["summary", "metrics", "rollouts"])
def test_a_file_of_a_newer_version_is_refused_with_what_to_do(run, kind):
    path = {
        "summary": run.summary, "metrics": run.metrics, "rollouts": run.shard("after", 2)
    }[kind]  # fmt: skip
    known = {"summary": SUMMARY, "metrics": METRICS, "rollouts": ROLLOUTS}[kind].version
    # A newer format may lack anything that this one needs.
    edit(path, schema=known + 1, step=None, before=None, rows=None)
    read = {
        "summary": lambda: read_summary(path),
        "metrics": lambda: list(read_metrics(path)),
        "rollouts": lambda: list(read_lines(run.root, "after")),
    }[kind]
    with pytest.raises(NewerFormat) as error:
        read()
    assert str(error.value) == (
        f"{path} was written by a newer agentsgym (schema {known + 1}; this one reads up to "
        f"{known}): upgrade with `pip install --upgrade agentsgym`"
    )


@pytest.mark.parametrize("version", [0, -1, "2", 1.5, None, True])
def test_a_version_that_is_none_is_damage(run, version):
    edit(run.summary, schema=version)
    with pytest.raises(DamagedFile, match=r"summary\.json is not a summary: schema is"):
        read_summary(run.summary)
    edit(run.shard("after", 2), schema=version)
    with pytest.raises(DamagedFile, match="line 4: schema is"):
        list(read_lines(run.root, "after"))
    edit(run.metrics, schema=version)
    assert len(list(read_metrics(run.metrics))) == 3


def test_records_go_through_every_conversion_since_their_version(run, monkeypatch):
    """A field of a step that gets another name, and then another."""

    def renamed(old, new):
        def convert(rollout):
            for episode in rollout["episodes"]:
                for step in episode["steps"]:
                    step[new] = step.pop(old)
            return rollout

        return convert

    ways = (*ROLLOUTS.conversions, renamed("kind", "sort"), renamed("sort", "kind"))
    later = Format(ways)
    assert later.version == ROLLOUTS.version + 2
    expected = list(read_lines(run.root))
    monkeypatch.setattr("agentsgym.runs.files.shard.ROLLOUTS", later)
    assert list(read_lines(run.root)) == expected
    record = {"schema": later.version - 1, "episodes": [{"steps": [{"sort": "action"}]}]}
    assert later.current(record, "x") == {"episodes": [{"steps": [{"kind": "action"}]}]}


def test_a_step_without_a_field_is_damage_that_names_it(run):
    path = run.shard("after", 2)
    record = json.loads(gzip.decompress(path.read_bytes()).splitlines()[-1])
    del record["episodes"][0]["steps"][0]["anchor"]
    edit(path, **record)
    with pytest.raises(DamagedFile, match="line 4: 'anchor' is missing"):
        list(read_lines(run.root, "after"))


def test_every_format_has_a_version():
    found = {name: value for name, value in vars(formats).items() if isinstance(value, Format)}
    assert set(found) == {"SUMMARY", "METRICS", "ROLLOUTS", "EVALUATION", "TOKEN_RECORDS",
        "SHARD_INDEX",
    }  # fmt: skip
