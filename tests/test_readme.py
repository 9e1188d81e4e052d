"""Every command and every piece of Python in the README runs, and every command of the docs."""

import shlex
from pathlib import Path

import pytest
from transformers import Qwen3Config

import chat_tokenizers
from checks.snippets import run_page
from helpers import CHATML, build_tokenizer
from pages import other_commands
from pages.page_blocks import blocks, fenced_commands

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHORT = "train.max_steps=2 eval.episodes=64 threads=1"
EXPLORE = f"{SHORT} warm_start.steps=2 warm_start.games_per_round=64 signal_check=false"
# What a test adds to a command of the README so that it ends in seconds, and what it types.
ADDED = {
    "agentsgym train quickstart seed=1": (f"{SHORT} --output runs/other", ""),
    "agentsgym train explore": (EXPLORE, ""),
    "agentsgym train explore train.advantage_estimator=step_return": (EXPLORE, ""),
    "agentsgym train quickstart --resume": ("", ""),
    "agentsgym eval runs/quickstart --vs agent:optimal": ("--episodes 32 --threads 1", ""),
    "agentsgym eval agent:optimal --suite explore": ("--episodes 2", ""),
    "agentsgym play TwentyQuestions": ("", "Is it an animal?\n[apple]\n"),
    "agentsgym view runs/quickstart": ("", ""),
    "agentsgym doctor runs/quickstart": ("", ""),
    "agentsgym credit runs/quickstart": ("", ""),
    "agentsgym export runs/quickstart --to tokens --out data/rollouts": ("", ""),
    "agentsgym envs": ("", ""),
    "agentsgym check TwentyQuestions": ("", ""),
    "agentsgym tokens builtin:quickstart": ("", ""),
    # It would not end, and its package is not in the environment of the tests.
    "agentsgym serve TwentyQuestions": ("--help", ""),
}
RUN = ADDED | {command: (more, "") for command, more in other_commands.ADDED.items()}
EXCUSED = tuple(other_commands.EXCUSED)
SUITE = "docs/exploration-suite.md"
RUN_FILE = "env: Mastermind\nmodel: builtin:quickstart\ntrain: {max_steps: 2}\n"


def agentsgym(command, typed=""):
    """Run a command line in this process, which saves loading torch again."""
    from typer.testing import CliRunner

    from agentsgym.cli.app import app

    return CliRunner().invoke(app, shlex.split(command)[1:], input=typed)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with what the commands name, in which the quickstart ran for two steps."""
    folder = tmp_path_factory.mktemp("readme")
    (suite,) = [b.body for b in blocks() if (b.page, b.language) == (SUITE, "yaml")]
    (folder / "FILE.yaml").write_text(suite)
    (folder / "my-run.yaml").write_text(RUN_FILE)
    thinks = chat_tokenizers.template("qwen3")
    chat_tokenizers.tokenizer_for(thinks).save_pretrained(folder / "my-model")
    Qwen3Config().save_pretrained(folder / "qwen")  # no hub has the presets' models here
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = agentsgym(f"agentsgym train quickstart {SHORT}")
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def workplace(made, monkeypatch):
    """The same as the current directory."""
    monkeypatch.chdir(made)
    return made


@pytest.mark.parametrize("command", RUN)
def test_commands(command, workplace):
    extra, typed = RUN[command]
    done = agentsgym(f"{command} {extra}".replace("eval MODEL", "eval agent:optimal"), typed)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", sorted(other_commands.CONFIGURED))
def test_settings_of_long_runs(command, workplace):
    done = agentsgym(f"{command} {other_commands.ONLY_SETTINGS}")
    assert done.exit_code == 0, done.output


def test_every_command_of_the_readme_is_run_or_excused():
    here = {c for c, block in fenced_commands().items() if block.page == "README.md"}
    here = {c for c in here if not c.startswith(EXCUSED)}
    assert not here - set(ADDED), "add these to ADDED above"
    assert not set(ADDED) - here, "the README has no such command"


def test_every_command_of_the_other_pages_is_run_or_excused():
    tables = (other_commands.ADDED, other_commands.CONFIGURED, other_commands.COVERED)
    listed = [command for table in tables for command in table]
    there = {c for c, block in fenced_commands().items() if block.page != "README.md"}
    there = {c for c in there if not c.startswith(EXCUSED)}
    assert not there - set(listed), "add these to a table of tests/pages/other_commands.py"
    assert not set(listed) - there, "no page has these, or the README has them too"
    assert len(set(listed)) == len(listed)
    assert all(begin in " ".join(fenced_commands()) for begin in EXCUSED)


@pytest.mark.parametrize("test", sorted(set(other_commands.COVERED.values())))
def test_what_another_test_runs_has_that_test(test):
    path, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8")


def test_python(workplace):
    own, session = [b.body for b in blocks() if (b.page, b.language) == ("README.md", "python")]
    example = (ROOT / "examples/own_environment.py").read_text(encoding="utf-8")
    assert own.strip() in example
    names = {}
    exec(session, names)
    assert len(names["batch"]["full_token_ids"]) == 4


def test_python_that_reads_a_run_or_a_model(workplace):
    from helpers import random_llama

    assert set(run_page(ROOT / "docs/run-directory.md")["played"]["phase"]) == {"train"}
    assert run_page(ROOT / "docs/tokens.md")["check"].thoughts_append_only is False
    tokenizer = build_tokenizer(CHATML)
    given = {"tokenizer": tokenizer, "model": random_llama(tokenizer)}
    assert run_page(ROOT / "docs/training.md", given)["result"]
