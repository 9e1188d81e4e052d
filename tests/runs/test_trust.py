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
from agentsgym.runs.trust import check_stored, outside, resume_command
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
    command = ["eval", "agent:optimal", "--env", "Bandit", "--rollouts", "2"]
    subprocess.run([program, *command], capture_output=True, timeout=120)
    assert marks(strange) == []


def test_python_m_takes_no_module_of_the_working_directory(tmp_path):
    (tmp_path / "typer.py").write_text(LEAVES_A_MARK.format(name="typer"))
    done = subprocess.run(
        [sys.executable, "-m", "agentsgym", "envs", "Bandit"],
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
    "settings",
    [
        {"env": "evil_env.Env"},
        {"env": "evil_env.Env", "train": {"trust": True, "max_steps": 1}},
        {"train": {"advantage_estimator": "evil_env.credit", "max_steps": 1}},
    ],
    ids=["environment", "environment, trusted by itself", "estimator"],
)
@pytest.mark.parametrize("command", ["eval", "train --resume", "eval --trust", "credit"])
def test_a_run_directory_is_never_searched_for_code(strange, invoke, run, settings, command):
    directory = run(**settings)
    (strange / "evil_env.py").unlink()
    (directory / "rollouts").mkdir()
    for folder in (directory, directory / "rollouts"):
        (folder / "evil_env.py").write_text(LEAVES_A_MARK.format(name="evil_env"))
        os.chdir(folder)
        result = invoke(*command.split(), str(directory))
        assert result.exit_code != 0, result.output
        assert marks(folder) == [] and str(folder) not in sys.path
    assert "evil_env" not in sys.modules


NOT_ONE = "import pathlib\n\ndef call(a, b): pathlib.Path('ran-call').touch()\n\nclass Env: pass\n"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"env": "other.Env"}, "is not a subclass of MultistepEnv"),
        ({"env": "os.system"}, "is not a subclass of MultistepEnv"),
        ({"train": {"advantage_estimator": "other.call"}}, "is not a function of a step table"),
        ({"train": {"advantage_estimator": "os.system"}}, "is not a function of a step table"),
        ({"train": {"advantage_estimator": "shutil.rmtree"}}, "is not a function of a step table"),
    ],
)
def test_a_dotted_path_counts_if_it_is_an_environment_or_an_estimator(
    strange, invoke, run, settings, sentence
):
    (strange / "other.py").write_text(NOT_ONE)
    result = invoke("train", "--resume", str(run(**{"max_seconds": 1, **settings})), "--restart")
    assert result.exit_code == 2, result.output
    assert sentence in " ".join(result.stderr.split())
    assert not (strange / "ran-call").exists()
    sys.modules.pop("other", None)


FILE = "/somebody/else"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"train": {"trust": True}}, "train.trust"),
        ({"data": {"eval": FILE}}, "data.eval"),
        ({"env": "ClassicalReasoning", "env_config": {"questions_file": FILE}},
         "env_config.questions_file"),
        ({"env": "Program", "env_config": {"function": "os.system"}}, "env_config.function"),
        ({"env": "TwentyQuestions",
          "env_config": {"answerer": {"urls": ["http://x"], "served_model": "m"}}},
         "env_config.answerer.urls"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["eval", "train --resume"])
def test_what_lies_outside_of_a_run_directory_is_named_by_the_user_too(
    invoke, run, settings, named, command
):
    directory = run(**settings)
    result = invoke(*command.split(), str(directory))
    assert result.exit_code == 2, result.output
    assert named in result.stderr and "--trust" in result.stderr


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"data": {"train": FILE}}, "data.train"),
        ({"model": FILE}, "model.path"),
        ({"model": "somebody/else"}, "model.path"),
        ({"model": {"path": "tiny", "chat_template": f"{FILE}.jinja"}}, "model.chat_template"),
        ({"engine": {"urls": ["http://x"]}}, "engine.urls"),
        ({"engine": {"launch": 1, "command": "serve-model"}}, "engine.command"),
        ({"engine": {"launch": 1}}, "engine.launch"),
        ({"warm_start": {"source": "rollouts", "run": FILE}}, "warm_start.run"),
        ({"train": {"push_to_hub": True}}, "train.push_to_hub"),
        ({"train": {"teacher_model": "teacher"}}, "train.teacher_model"),
        ({"train": {"deepspeed": "zero.json"}}, "train.deepspeed"),
        ({"train": {"deepspeed": {"offload": {"nvme_path": FILE}}}}, "train.deepspeed"),
    ],
)
def test_what_training_would_reach_is_named_by_the_user_too(invoke, run, settings, named):
    directory = run(**settings)
    before = sorted(path.name for path in directory.iterdir())
    result = invoke("train", "--resume", str(directory), "--restart")
    assert result.exit_code == 2, result.output
    assert f"{named}" in result.stderr and "--trust" in result.stderr
    assert sorted(path.name for path in directory.iterdir()) == before


def test_what_the_user_names_too_is_theirs(run, tmp_path):
    named = {"env_config.questions_file": "/my/questions"}
    directory = run(env="ClassicalReasoning", env_config={"eval_file": "/their/file"})
    with pytest.raises(ConfigError, match=r"outside of it: env_config.eval_file=/their/file\."):
        check_stored(load_run(directory, named), named, training=False)
    both = {**named, "env_config.eval_file": "/their/file"}
    check_stored(load_run(directory, named), both, training=False)
    mine = parse_config({"env": "ClassicalReasoning", "env_config": {"eval_file": "/their/file"}})
    check_stored(load_run(directory), training=True, file=mine)


def test_what_is_harmless_needs_no_switch(run):
    harmless = {"stop_strings": ["</a>"], "report_to": "none", "trust": ["my_module"], "beta": 0.1}
    directory = run(train=harmless, data={"train": "their-run/tasks.jsonl"})
    (directory / "tasks.jsonl").touch()
    assert outside(load_run(directory), training=True) == {}


def test_the_command_to_resume_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"env": "Bandit", "model": "tiny", "output_dir": "mine"}
    assert resume_command(parse_config(settings)) == "agentsgym train --resume mine"
    asks = parse_config({**settings, "engine": {"urls": ["http://x"]}})
    assert resume_command(asks).endswith("mine --trust")
    monkeypatch.setenv("WORLD_SIZE", "2")
    command = "agentsgym train --resume mine --processes 2"
    assert resume_command(parse_config(settings)) == command
