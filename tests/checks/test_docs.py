"""The pages of the docs: every snippet runs, every transcript was played."""

import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsgym.checks.rules import CHECKS
from agentsgym.cli.app import app
from agentsgym.envs import registry
from checks.snippets import blocks, rendered, run_page

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "environments/textarena.md": "textarena",
    "environments/classical-reasoning.md": None,
    "environments/gymnasium.md": "gymnasium",
    "write-your-own-environment.md": None,
}


@pytest.fixture(autouse=True)
def _names_registered_here_are_forgotten(monkeypatch):
    monkeypatch.setattr(registry, "_CLASSES", dict(registry._CLASSES))


@pytest.mark.parametrize("page", PAGES)
def test_snippets_run_and_transcripts_are_true(page):
    if PAGES[page]:
        pytest.importorskip(PAGES[page], reason=f"needs the extra {PAGES[page]}")
    namespace = run_page(DOCS / page)
    assert blocks((DOCS / page).read_text(), "") == [rendered(namespace["batch"]) + "\n"]


def test_the_table_of_games_is_the_table():
    pytest.importorskip("textarena", reason="needs the extra textarena")
    from agentsgym.envs import make
    from agentsgym.envs.textarena import GAMES

    text = (DOCS / "environments/textarena.md").read_text()
    for game in GAMES.values():
        env = make(f"TextArena/{game.name}")
        steps, tasks = env.config["max_steps_per_episode"], "one" if env.one_puzzle else "seeds"
        assert f"| {game.name} | {steps} | {game.low:g} to {game.high:g} | {tasks} |" in text


def test_the_guide_ends_with_a_check_that_passes(tmp_path, monkeypatch):
    page = (DOCS / "write-your-own-environment.md").read_text()
    (tmp_path / "letters.py").write_text(blocks(page, "python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "letters", raising=False)
    program, command, *arguments = shlex.split(blocks(page, "bash")[0])
    assert (program, command) == ("agentsgym", "check")
    result = CliRunner().invoke(app, [command, *arguments, "--seconds", "10"])
    assert result.exit_code == 0, result.output
    assert "letters" in sys.modules or "passed" in result.stdout
    for name in CHECKS:
        assert f"| {name} |" in page
