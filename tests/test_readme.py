"""The commands of the README and the quickstart run, its Python, and short commands of the docs."""

import re
import shlex
from pathlib import Path

import pytest
from transformers import Qwen3Config

import chat_tokenizers
from checks.snippets import run_page
from helpers import CHATML, build_tokenizer
from pages.page_blocks import blocks, fenced_commands

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHORT = "train.max_steps=2 eval.rollouts=64 threads=1"
EXPLORE = f"{SHORT} warm_start.steps=2 warm_start.games_per_round=64 signal_check=false"
# What a test adds to a command so that it ends in seconds, and what it types: without an entry,
# nothing for a command of the README or the quickstart; others without one are not run.
ADDED = {
    "agentsgym train quickstart seed=1": (f"{SHORT} --output runs/other", ""),
    "agentsgym train explore threads=1 train.advantage_estimator=step_return": (EXPLORE, ""),
    "agentsgym eval runs/quickstart --vs agent:optimal": ("--rollouts 32 --threads 1", ""),
    "agentsgym eval agent:optimal --vs runs/quickstart": ("--rollouts 32 --threads 1", ""),
    "agentsgym eval agent:optimal --suite explore": ("--tasks 2", ""),
    "agentsgym play TwentyQuestions": ("", "Is it an animal?\n[apple]\n"),
    "agentsgym eval runs/quickstart --output evals/quickstart": ("--rollouts 64 --threads 1", ""),
    "agentsgym eval runs/quickstart --plan --rollouts 512": ("", ""),
    "agentsgym eval MODEL --suite FILE.yaml": ("--tasks 2", ""),
    "agentsgym train one-gpu --estimate": ("model.path=qwen", ""),
    "agentsgym export runs/quickstart --to preference --out data/pairs.parquet": ("", ""),
    "agentsgym tokens my-model --env TwentyQuestions model.chat_template=training": ("", ""),
}
# Minutes to hours: the settings are resolved and checked.
LONG = sorted(
    command
    for command in fenced_commands()
    if re.match(
        r"(\S+/)?agentsgym train (quickstart|explore|smollm2|my-run.yaml|one-gpu|eight-gpus)\b",
        command,
    )
    and command not in ADDED
)
# tests/integrations/with_openenv and tests/generation/test_serve_model.py run them.
ENDLESS = ("agentsgym serve TwentyQuestions", "agentsgym serve-model runs/quickstart")
FIRST = ("README.md", "docs/quickstart.md")
RUN = dict.fromkeys([*ADDED, *(c for c, b in fenced_commands().items() if b.page in FIRST)])
SHORT_ONES = [c for c in RUN if c.startswith("agentsgym ") and c not in {*LONG, *ENDLESS}]
SUITE = "docs/evaluation.md"
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


@pytest.mark.parametrize("command", SHORT_ONES)
def test_commands(command, workplace):
    assert command in fenced_commands(), "no page has it"
    extra, typed = ADDED.get(command, ("", ""))
    done = agentsgym(f"{command} {extra}".replace("eval MODEL", "eval agent:optimal"), typed)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", LONG)
def test_settings_of_long_runs(command, workplace):
    of_the_hub = " model.path=qwen" * ("-gpu" in command)
    done = agentsgym(f"{command}{of_the_hub} --estimate")
    assert done.exit_code == 0, done.output


def test_python(workplace):
    own, session = [b.body for b in blocks() if (b.page, b.language) == ("README.md", "python")]
    example = (ROOT / "examples/own_environment.py").read_text(encoding="utf-8")
    assert own.strip() in example
    names = {}
    exec(session, names)
    assert len(names["batch"]["full_token_ids"]) == 4


def test_python_that_reads_a_run_or_a_model(workplace):
    from helpers import random_llama

    stored = run_page(ROOT / "docs/run-directory.md")
    assert set(stored["played"]["phase"]) == {stored["one"].phase} == {"train"}
    assert run_page(ROOT / "docs/recipes.md")["metrics"]["step"].max() == 2
    assert run_page(ROOT / "docs/tokens.md")["check"].thoughts_append_only is False
    tokenizer = build_tokenizer(CHATML)
    given = {"tokenizer": tokenizer, "model": random_llama(tokenizer)}
    assert run_page(ROOT / "docs/warm-start.md", given)["result"]
