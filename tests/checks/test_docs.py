"""The pages of the docs: every snippet runs, every transcript was played."""

import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsgym import RolloutBatch, ScriptedAgent, make
from agentsgym.checks.check import CHECKS
from agentsgym.cli.app import app
from agentsgym.envs import registry
from checks.snippets import blocks, rendered, run_page
from pages import page_blocks

DOCS = Path(__file__).parents[2] / "docs"
# Other tests run the Python of these: test_readme.py, credit/test_estimators.py,
# report/test_export.py, and of integrations with_openenv/test_serving.py and test_inspect_task.py.
ELSEWHERE = {
    "README.md",
    "docs/credit.md",
    "docs/integrations/openenv-verifiers-inspect.md",
    "docs/recipes.md",
    "docs/run-directory.md",
    "docs/tokens.md",
    "docs/viewer.md",
    "docs/warm-start.md",
}
PAGES = sorted({one.page for one in page_blocks.blocks() if one.language == "python"} - ELSEWHERE)
# Page → the modules of the extras that it needs.
NEEDS = {
    "docs/engines.md": ("aiohttp",),
    "docs/environments/text-adventures.md": ("alfworld", "textworld"),
    "docs/environments/textarena.md": ("textarena", "gymnasium"),
    "docs/tools.md": ("mcp",),
}
SLOW = {"docs/environments/text-adventures.md"}  # it makes games
# Games that were recorded: the page says with which settings, its code plays another one.
RECORDED = {*SLOW, "docs/environments/twenty-questions.md"}


@pytest.fixture(autouse=True)
def _names_registered_here_are_forgotten(monkeypatch):
    monkeypatch.setattr(registry, "_CLASSES", dict(registry._CLASSES))


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow) if p in SLOW else p for p in PAGES]
)
def test_snippets_run_and_transcripts_are_true(page, monkeypatch):
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module, reason=f"needs the extra with {module}")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    namespace = run_page(DOCS.parent / page)
    transcripts = blocks((DOCS.parent / page).read_text(), "text")
    if page not in RECORDED:
        batches = [value for value in namespace.values() if isinstance(value, RolloutBatch)]
        assert {*transcripts} <= {rendered(batch) + "\n" for batch in batches}


def test_the_game_of_twenty_questions_goes_as_on_its_page():
    (shown,) = blocks((DOCS / "environments/twenty-questions.md").read_text(), "text")
    actions = [line for line in shown.splitlines() if not line.startswith(" ")]
    env = make("TwentyQuestions", env_config={"hints": 2})
    batch = env.run_trial([{"solution": "violin", "seed": 4}], ScriptedAgent(actions))
    assert rendered(batch).split() == shown.split()  # the page breaks long lines


def test_the_guide_ends_with_a_check_that_passes(tmp_path, monkeypatch):
    page = (DOCS / "write-your-own-environment.md").read_text()
    reference = (DOCS / "environment-reference.md").read_text()
    (tmp_path / "letters.py").write_text(blocks(page, "python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "letters", raising=False)
    program, command, *arguments = shlex.split(blocks(page, "bash")[0])
    assert (program, command) == ("agentsgym", "check")
    result = CliRunner().invoke(app, [command, *arguments, "--seconds", "10"])
    assert result.exit_code == 0, result.output
    assert "letters" in sys.modules or "passed" in result.stdout
    for name in CHECKS:
        assert f"| {name} |" in reference
