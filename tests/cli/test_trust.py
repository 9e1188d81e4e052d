"""Directories that a user only entered or was handed run nothing."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agentsgym.envs import ConfigError
from agentsgym.envs.user_code import import_from_here
from agentsgym.runs import load_run, parse_config
from agentsgym.runs.trust import Allowed, check_sending, distrusted, permitted, resume_command

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


@pytest.mark.parametrize(
    "arguments",
    [
        ["play", "TwentyQuestions"],
        ["check", "Bandit", "--seconds", "1"],
        ["eval", "agent:optimal", "--env", "Bandit", "--episodes", "2"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_module_of_the_working_directory_is_run(strange, arguments):
    program = Path(sys.executable).with_name("agentsgym")
    subprocess.run(
        [str(program), *arguments], capture_output=True, timeout=120, input="", text=True
    )
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
    assert "arm_names" in done.stdout
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
    ("settings", "needed"),
    [
        ({"env": "evil_env.Env"}, "--allow-imports evil_env"),
        ({"env": "evil_env.Env", "train": {"allow_imports": True}}, "--allow-imports evil_env"),
        ({"train": {"advantage_estimator": "evil_env.credit"}}, "--allow-imports evil_env"),
        ({"train": {"allow_imports": ["evil_env"]}}, "--allow-imports evil_env"),
    ],
    ids=["environment", "environment, allowed by itself", "estimator", "rows"],
)
@pytest.mark.parametrize("command", ["eval", "train --resume"])
def test_code_that_a_run_directory_names_is_not_imported(
    strange, invoke, run, settings, needed, command
):
    directory = run(**settings)
    os.chdir(directory)
    shutil.copy(strange / "evil_env.py", directory)
    result = invoke(*command.split(), ".")
    assert result.exit_code == 2, result.output
    assert needed in result.output and "runs its code" in result.output
    assert marks(strange) == marks(directory) == []
    assert "evil_env" not in sys.modules


def test_files_that_a_run_directory_names_are_not_read(strange, invoke, run):
    questions = strange / "questions.jsonl"
    settings = {"env": "ClassicalReasoning", "env_config": {"questions_file": str(questions)}}
    directory = run(**settings)
    result = invoke("eval", str(directory))
    assert result.exit_code == 2
    assert "--allow-paths" in result.output and "questions_file" in result.output
    assert "no such file" not in result.output.lower()


def test_what_the_user_allows_takes_the_place_of_what_the_directory_allows(run):
    directory = run(train={"allow_imports": True, "allow_paths": ["/"], "max_steps": 3})
    config = distrusted(load_run(directory), Allowed())
    assert config.train == {"max_steps": 3}
    config = distrusted(load_run(directory), Allowed(("mine",), ("/games",)))
    assert config.train == {"max_steps": 3, "allow_imports": ["mine"], "allow_paths": ["/games"]}


def test_what_the_user_names_on_the_command_line_is_theirs(run):
    overrides = {"env": "Mastermind", "train.advantage_estimator": "mine.credit"}
    allowed = Allowed().and_named_in(overrides)
    assert allowed.allows("mine") and not allowed.allows("evil_env") and not allowed.allows("min")
    files = {"env_config.questions_file": "/my/questions"}
    directory = run(env="ClassicalReasoning", env_config={"eval_file": "/their/file"})
    with pytest.raises(ConfigError, match="eval_file"):
        distrusted(load_run(directory, files), Allowed(), files)
    distrusted(load_run(directory, files), Allowed(paths=("/their",)), files)


def test_the_command_that_resumes_a_run_allows_what_it_needs(tmp_path):
    data = {"env": "evil_env.Env", "train": {"allow_paths": ["/my games"]}, "output_dir": "o"}
    config = parse_config({**data, "env": "Bandit", "train": data["train"]})
    assert resume_command(config) == "agentsgym train --resume o --allow-paths '/my games'"
    assert permitted(config, Allowed(("mine",))).train["allow_imports"] == ["mine"]
    assert resume_command(permitted(config, Allowed(("mine",)))) == (
        "agentsgym train --resume o --allow-imports mine --allow-paths '/my games'"
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"push_to_hub": True}, "train.push_to_hub=true"),
        ({"report_to": ["wandb"]}, 'train.report_to=["wandb"]'),
        ({"trackio_space_id": "theirs/space"}, "train.trackio_space_id=theirs/space"),
        ({"log_completions_hub_repo": "theirs/all"}, "train.log_completions_hub_repo=theirs/all"),
        ({"engine_urls": ["http://theirs:8000"]}, 'train.engine_urls=["http://theirs:8000"]'),
        ({"vllm_server_host": "theirs"}, "train.vllm_server_host=theirs"),
        ({"vllm_server_base_url": "http://theirs"}, "train.vllm_server_base_url=http://theirs"),
    ],
)
def test_a_run_of_a_stranger_sends_nothing_on_that_the_user_did_not_name(
    strange, invoke, run, settings, told
):
    directory = run(train={"max_steps": 1, **settings})
    before = sorted(path.name for path in directory.iterdir())
    result = invoke("train", "--resume", str(directory))
    assert result.exit_code == 2 and told in "".join(result.output.split("\n"))
    assert sorted(path.name for path in directory.iterdir()) == before
    config = load_run(directory)
    check_sending(config, {told.partition("=")[0]})
    assert told in shlex.split(resume_command(config))


def test_a_file_of_the_user_names_what_its_run_may_reach(run, strange, invoke):
    reached = {
        "engine": {"urls": ["http://mine"], "key_env": "MINE"},
        "warm_start": {"source": "chat", "engine": {"urls": ["http://teacher"]}},
        "train": {"max_steps": 1, "report_to": ["wandb"]},
    }
    own = parse_config({"env": "Bandit", **reached})
    directory = run(**reached)
    check_sending(load_run(directory), (), own)
    (strange / "own.yaml").write_text(yaml.safe_dump({"env": "Bandit", **reached}))
    result = invoke("train", "own.yaml", "--resume", "--output", str(directory))
    assert "lets it reach others" not in result.output and "MINE" in result.output
    for section in ({"engine": {"urls": ["http://theirs"]}}, {"train": {"report_to": ["theirs"]}}):
        with pytest.raises(ConfigError, match="lets it reach others"):
            check_sending(load_run(run(**reached | section)), (), own)


def test_a_run_that_reports_to_nobody_goes_on_as_it_is(run):
    for value in ("none", ["none"], [], None):
        check_sending(load_run(run(train={"report_to": value, "push_to_hub": False})), ())
