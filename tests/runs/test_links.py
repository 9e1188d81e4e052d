"""A stranger's run directory makes nothing be written or deleted elsewhere, and fills no memory."""

import pytest
import yaml

from agentsgym.envs import ConfigError
from agentsgym.runs import load_run, train_run
from agentsgym.runs.files.directory import lock_directory
from agentsgym.runs.sources import load_yaml
from agentsgym.runs.trust import check_links


@pytest.fixture
def run(tmp_path):
    directory = tmp_path / "their-run"
    directory.mkdir()
    (directory / "config.yaml").write_text(yaml.safe_dump({"env": "Bandit", "train": {}}))
    return directory


def test_a_lock_that_is_a_link_empties_nothing(tmp_path, run):
    mine = tmp_path / "mine"
    mine.write_text("kept")
    (run / ".lock").symlink_to(mine)
    with pytest.raises(OSError, match=r"\.lock"):
        lock_directory(run)
    assert mine.read_text() == "kept"


@pytest.mark.parametrize("name", ["rollouts", "checkpoints", "metrics.jsonl", "model/deep"])
def test_a_run_with_a_link_to_elsewhere_is_not_resumed(tmp_path, run, name):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train-000001.parquet").write_text("kept")
    (run / "model").mkdir()
    (run / name).symlink_to(mine)
    (run / "config.yaml").write_text(yaml.safe_dump({"env": "Bandit", "train": {"max_steps": 1}}))
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(ConfigError, match=r"is a link to .*--trust"):
        train_run(load_run(run), resume=True)
    assert sorted(path.name for path in run.iterdir()) == before
    assert [path.name for path in mine.iterdir()] == ["train-000001.parquet"]


def test_links_within_a_run_are_followed(tmp_path, run):
    (run / "latest").symlink_to(run / "config.yaml")
    check_links(run)
    (run / "checkpoints").symlink_to(tmp_path / "disk")
    with pytest.raises(ConfigError, match="checkpoints is a link to"):
        check_links(run)


def test_mappings_that_merge_each_other_again_and_again_do_not_grow():
    lines = ["a0: &a0 {key: 1}"]
    for number in range(1, 30):
        merged = ", ".join([f"*a{number - 1}"] * 3)
        lines.append(f"a{number}: &a{number}\n  <<: [{merged}]")
    assert load_yaml("\n".join(lines), "config.yaml")["a29"] == {"key": 1}
    assert load_yaml("a: &a {x: 1}\nb: {<<: *a, y: 1e-4}", "mine")["b"] == {"x": 1, "y": 1e-4}
