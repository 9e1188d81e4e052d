"""The snippets on the pages of docs/integrations run."""

from pathlib import Path

import pytest

from agentsgym.envs import registry
from checks.snippets import run_page

PAGES = Path(__file__).parents[2] / "docs/integrations"


@pytest.mark.parametrize("page", ["stepping"])
def test_snippets_run(page, monkeypatch):
    monkeypatch.setattr(registry, "_CLASSES", dict(registry._CLASSES))
    run_page(PAGES / f"{page}.md")
