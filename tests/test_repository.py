"""The files that a newcomer meets: the version that they tell, and that they can be read."""

import re
import tomllib
from pathlib import Path

import pytest

import agentsgym

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page
    for pages in ("*.md", "docs/**/*.md", "benchmarks/*.md", "experiments/*.md")
    for page in ROOT.glob(pages)
)


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_stands_in_one_place():
    project = tomllib.loads(text("pyproject.toml"))
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"] == {"path": "src/agentsgym/__init__.py"}
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", agentsgym.__version__)
    assert not re.search("^version:", text("CITATION.cff"), re.MULTILINE)


def prose(page):
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def anchors(page):
    """What GitHub and the site call the page's headings."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_pages_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", prose(page))
    assert not [path for path, _ in links if not (page.parent / path).exists()]
    targets = [(page.parent / path if path else page, anchor) for path, anchor in links if anchor]
    assert not [(t, anchor) for t, anchor in targets if anchor not in anchors(t)]
