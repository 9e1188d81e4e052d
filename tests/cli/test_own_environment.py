"""The environment of docs/write-your-own-environment.md, trained and evaluated from the shell."""

import json
import sys
from pathlib import Path

import pytest

from checks.snippets import blocks

PAGE = Path(__file__).parents[2] / "docs" / "write-your-own-environment.md"
SHORT = [
    "train.preset=auto",
    "warm_start.steps=2", "warm_start.batch_size=4", "warm_start.tokenizer_games=12",
    "warm_start.games_per_round=8", "train.max_steps=1", "train.per_device_train_batch_size=8",
    "train.num_generations=4", "train.use_cpu=true", "eval.rollouts=4",
    "warm_start.model.layers=1", "warm_start.model.hidden_size=32",
    "warm_start.model.intermediate_size=64", "signal_check=false",
]  # fmt: skip


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A directory with the page's files."""
    text = PAGE.read_text()
    (tmp_path / "letters.py").write_text(blocks(text, "python")[0])
    (tmp_path / "letters.yaml").write_text(blocks(text, "yaml")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "letters", raising=False)
    yield text
    sys.modules.pop("letters", None)


def test_it_is_trained_by_the_commands_of_the_page(page, invoke):
    train, evaluate, scripted = blocks(page, "bash")[1].splitlines()
    result = invoke(*train.split()[1:], *SHORT)
    assert result.exit_code == 0, result.output
    summary = json.loads(Path("runs/letters/summary.json").read_text())
    assert (summary["status"], summary["after"]["failures"]) == ("finished", 0)
    for command in (evaluate, scripted):
        result = invoke(*command.split()[1:], "--rollouts", "4", "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["failures"] == 0


def test_a_scripted_agent_plays_it_in_worker_processes(page, invoke):
    result = invoke(
        "eval", "agent:teacher", "--env", "letters.LettersEnv", "env_config.workers=2",
        "--rollouts", "32", "--json",
    )  # fmt: skip
    evaluation = json.loads(result.stdout)
    # Among 16 words, four guesses hit with 1 - (15/16)^4 = 0.23.
    assert evaluation["failures"] == 0 and 0.0 < evaluation["win_rate"] < 0.6
