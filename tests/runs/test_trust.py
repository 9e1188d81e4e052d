"""Directories that a user only entered or was handed run nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agentsgym.envs import ConfigError
from agentsgym.runs import load_run, parse_config
from agentsgym.runs.trust import (
    check_untrusted,
    is_own,
    own_directories,
    remember_own,
    resume_command,
)
from agentsgym.types.names import import_from_here

SHADOWS = ("datasets", "json", "numpy", "typer", "yaml", "textarena", "agentsgym", "site")
LEAVES_A_MARK = "import pathlib\npathlib.Path('ran-{name}').touch()\n"


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """The current directory: modules that say when they are imported."""
    for name in (*SHADOWS, "evil_env"):
        (tmp_path / f"{name}.py").write_text(LEAVES_A_MARK.format(name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    return tmp_path


def marks(folder):
    return sorted(path.name for path in folder.glob("ran-*"))


def test_no_module_of_the_working_directory_is_run(strange):
    program = str(Path(sys.executable).with_name("agentsgym"))
    command = ["eval", "agent:optimal", "--env", "Bandit", "--episodes", "2"]
    subprocess.run([program, *command], capture_output=True, timeout=120)
    assert marks(strange) == []


def test_python_m_takes_no_module_of_the_working_directory(tmp_path):
    (tmp_path / "typer.py").write_text(LEAVES_A_MARK.format(name="typer"))
    done = subprocess.run(
        [sys.executable, "-m", "agentsgym", "play", "Bandit", "--help-config"],
        capture_output=True,
        timeout=60,
        text=True,
        cwd=tmp_path,
    )
    assert "prior_alpha" in done.stdout
    assert marks(tmp_path) == []


@pytest.mark.parametrize("name", ["Bandit", "TextArena/2048", "agentsgym.envs.Bandit", "nothing"])
def test_a_name_that_needs_no_code_of_the_user_opens_nothing(strange, name):
    import_from_here(name)
    assert str(strange) not in sys.path


def test_a_dotted_path_opens_the_directory_behind_everything_installed(strange):
    import_from_here("Bandit", "my_env.MyEnv")
    import_from_here("my_env.MyEnv")
    assert sys.path.index(str(strange)) == len(sys.path) - 1
    assert sys.path.count(str(strange)) == 1


@pytest.fixture
def run(strange):
    """A run directory of a stranger."""

    def written(**settings):
        directory = strange / "their-run"
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "model").mkdir(parents=True)
        data = {"env": "Bandit", "model": "builtin:quickstart", **settings}
        (directory / "config.yaml").write_text(yaml.safe_dump(data))
        return directory

    return written


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"env": "evil_env.Env"}, "env=evil_env.Env"),
        ({"env": "evil_env.Env", "train": {"trust": True}}, "train.trust=true env=evil_env.Env"),
        ({"train": {"advantage_estimator": "evil_env.credit"}}, "=evil_env.credit"),
        ({"train": {"trust": ["evil_env"]}}, 'train.trust=["evil_env"]'),
    ],
    ids=["environment", "environment, trusted by itself", "estimator", "rows"],
)
@pytest.mark.parametrize("command", ["eval", "train --resume"])
def test_code_that_a_run_directory_names_is_not_imported(
    strange, invoke, run, settings, named, command
):
    directory = run(**settings)
    os.chdir(directory)
    shutil.copy(strange / "evil_env.py", directory)
    result = invoke(*command.split(), ".")
    assert result.exit_code == 2, result.output
    assert "is not one of yours" in result.output and "--trust" in result.output
    assert command != "eval" or named in " ".join(result.output.split())
    assert marks(strange) == marks(directory) == []
    assert "evil_env" not in sys.modules


def test_files_that_a_run_directory_names_are_not_read(strange, invoke, run):
    questions = strange / "questions.jsonl"
    settings = {"env": "ClassicalReasoning", "env_config": {"questions_file": str(questions)}}
    directory = run(**settings)
    result = invoke("eval", str(directory))
    assert result.exit_code == 2
    assert "--trust" in result.output and "questions_file" in result.output
    assert "no such file" not in result.output.lower()
    trusted = invoke("eval", str(directory), "--trust")
    assert trusted.exit_code != 0 and "is not one of yours" not in trusted.output


def test_what_the_user_names_too_is_theirs(run):
    named = {"env_config.questions_file": "/my/questions"}
    directory = run(env="ClassicalReasoning", env_config={"eval_file": "/their/file"})
    with pytest.raises(ConfigError, match=r"servers: env_config.eval_file=/their/file\."):
        check_untrusted(load_run(directory, named), named)
    check_untrusted(load_run(directory, named), {**named, "env_config.eval_file": "/their/file"})


def test_the_settings_of_an_environment_are_read_only_if_its_class_may_be_imported(strange, run):
    """The user's own class, and in the directory a file for it."""
    (strange / "mine.py").write_text(
        "from agentsgym.envs.classical_reasoning import ClassicalReasoningEnv\n"
        "class Env(ClassicalReasoningEnv): pass\n"
    )
    directory = run(env="mine.Env", env_config={"questions_file": "/their/file"})
    with pytest.raises(ConfigError, match=r"servers: env=mine.Env\."):
        check_untrusted(load_run(directory))
    assert "mine" not in sys.modules
    with pytest.raises(ConfigError, match=r"servers: env_config.questions_file=/their/file\."):
        check_untrusted(load_run(directory), {"env": "mine.Env"})
    sys.modules.pop("mine")


def test_a_directory_is_ones_own_by_its_place_and_its_number(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    mine, config = tmp_path / "mine", parse_config({"env": "Bandit", "output_dir": "mine"})
    monkeypatch.chdir(tmp_path)
    (mine / "model").mkdir(parents=True)
    assert not is_own(mine) and resume_command(config).endswith("mine --trust")
    remember_own(mine)
    remember_own(mine)
    assert is_own(mine) and is_own(mine / "model") and not is_own(tmp_path)
    assert len(own_directories().read_text().splitlines()) == 1
    assert resume_command(config) == "agentsgym train --resume mine"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert resume_command(config) == "agentsgym train --resume mine --processes 2"
    (tmp_path / "link").symlink_to(mine)
    assert is_own(tmp_path / "link")
    mine.rename(tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", mine)
    assert not is_own(mine) and not is_own(tmp_path / "kept")
    own_directories().write_bytes(b"\xff\x00")
    assert not is_own(mine)


def test_where_the_list_cannot_be_written_nothing_is_ones_own(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    remember_own(tmp_path)
    assert not is_own(tmp_path)


def test_the_runs_and_evaluations_of_ones_own_commands_need_no_switch(invoke, workplace):
    assert invoke("train", "toy.yaml", "train.max_steps=1", "eval.episodes=2").exit_code == 0
    for arguments in (
        ("eval", "runs/toy", "--episodes", "2", "--output", "played"),
        ("eval", "runs/toy", "--episodes", "2", "--output", "played"),
        ("train", "--resume", "runs/toy", "train.max_steps=2"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 0, result.output
    assert is_own(Path("runs/toy")) and is_own(Path("played"))
    shutil.copytree("runs/toy", "copied")
    assert invoke("eval", "copied").exit_code == 2
    assert invoke("eval", "copied", "--episodes", "2", "--trust").exit_code == 0


def test_a_run_of_a_stranger_is_not_resumed(strange, invoke, run):
    directory = run(train={"max_steps": 1})
    before = sorted(path.name for path in directory.iterdir())
    (strange / "own.yaml").write_text(yaml.safe_dump({"env": "Bandit"}))
    for command in (["--resume", str(directory)], ["own.yaml", "--resume", "-o", str(directory)]):
        result = invoke("train", *command)
        assert result.exit_code == 2, result.output
        assert "is not one of yours" in result.output and "--trust" in result.output
    assert sorted(path.name for path in directory.iterdir()) == before
