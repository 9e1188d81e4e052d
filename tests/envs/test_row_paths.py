"""A dataset row names files only where the caller allows it."""

import json

import pytest

import agentsgym
from agentsgym import ScriptedAgent, rollout
from agentsgym.envs import ConfigError, EnvPool, settings
from agentsgym.types import checked_path
from agentsgym.types.names import PathRefused

QUESTION = {"question": "1 + 1?", "answer": "2"}


@pytest.fixture(autouse=True)
def _nothing_was_given(monkeypatch):
    monkeypatch.setattr(settings, "_OWN", set())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "files" / "questions.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join(json.dumps({**QUESTION, "question": f"{k} + 1?"}) for k in range(9)))
    return path


def row(file, name="ClassicalReasoning", key="questions_file"):
    return {"env_class_path": name, "env_config": {key: str(file)}, "task_data": {}}


def test_a_row_reads_no_file_that_nobody_trusts(file):
    with pytest.raises(ConfigError, match=r"questions_file.*trust=True"):
        EnvPool().get(row(file))
    with pytest.raises(ConfigError, match="questions_file"):
        rollout.run([row(file)], ScriptedAgent(["x"]))
    with pytest.raises(ConfigError, match="questions_file"):
        EnvPool(trust=["helpers"]).get(row(file))
    assert EnvPool(trust=True).get(row(file)).config.questions_file


def test_a_row_chooses_no_folder_for_games(tmp_path):
    pytest.importorskip("alfworld")
    pytest.importorskip("textworld")
    for name, key in (("ALFWorld", "cache_dir"), ("ALFWorld", "data"), ("TextWorld", "cache_dir")):
        with pytest.raises(ConfigError, match=f"{name}: .*{key}"):
            EnvPool().get(row(tmp_path / "games", name, key))
    assert list(tmp_path.iterdir()) == []


def test_links_dots_and_variables_are_seen_through(file, tmp_path, monkeypatch):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(file)
    monkeypatch.setenv("ALFWORLD_DATA", str(inside))
    monkeypatch.setenv("ELSEWHERE", str(file.parent))
    for hostile in (inside / "link", f"{inside}/../files/{file.name}", f"$ELSEWHERE/{file.name}"):
        with pytest.raises(ConfigError):
            EnvPool().get(row(hostile))
    with pytest.raises(ConfigError):
        EnvPool().get(row("\0"))
    (inside / "own").write_bytes(file.read_bytes())
    assert EnvPool().get(row(inside / "own"))


def test_the_rows_of_an_environment_of_ones_own_may_repeat_its_configuration(file):
    env = agentsgym.make("ClassicalReasoning", None, {"questions_file": str(file)})
    rows = env.get_train_dataset()
    batch = rollout.run(rows.select([0]), ScriptedAgent(["2"]))
    assert not batch.rollouts[0].failed
    with pytest.raises(ConfigError):
        EnvPool().get(row(file.parent / "other.jsonl"))


def test_a_directory_does_not_allow_its_namesakes(tmp_path):
    allowed = [tmp_path / "data"]
    assert checked_path(str(tmp_path / "data" / "x"), allowed) == tmp_path / "data" / "x"
    with pytest.raises(PathRefused):
        checked_path(str(tmp_path / "data-of-others" / "x"), allowed)


def test_rows_of_adapters_name_no_module_and_no_file():
    """`gymnasium.make` and `textarena.make` would import what stands before a colon."""
    pytest.importorskip("gymnasium")
    pytest.importorskip("textarena")
    for name, config in (
        ("Gymnasium/FrozenLake", {"map": "os:system"}),
        ("Gymnasium/FrozenLake", {"env_id": "os:system"}),
        ("Gymnasium/FrozenLake", {"size": 10**6}),
        ("TextArena/Mastermind", {"variant": "os:system"}),
    ):
        with pytest.raises(ConfigError):
            EnvPool().get({"env_class_path": name, "env_config": config, "task_data": {}})
