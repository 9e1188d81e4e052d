"""Tables of measured figures stand in a section that names the command that made them."""

import re

import pytest

from pages.page_blocks import ROOT, pages

# Percentages, intervals, ± and times or sizes in a line of a table.
_FIGURE = re.compile(r"^\|.*((?<!95)(?<=\d) ?%|±|\d\.\d+ \[|\d (MB|KB|ms|s)\b)", re.MULTILINE)
_COMMAND = re.compile(r"(agentsgym|make|python) \S|tests/\w+/test_\w+\.py")
_HEADING = re.compile(r"^(?=##+ )", re.MULTILINE)


def sections(text):
    """(heading, text, what else tells its commands) of each section: the section that it is a part
    of, and the head of a page that a script has written."""
    fenced = re.sub(
        r"^```\w*\n(.*?)^```$", lambda m: m[0].replace("#", ""), text, flags=re.S | re.M
    )
    head, *found = _HEADING.split(fenced)
    yield head.partition("\n")[0], head, ""
    written = head if "Written by `python " in head else ""
    above = ""
    for section in found:
        if section.startswith("## "):
            above = section
        yield section.partition("\n")[0], section, written + above


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_table_of_figures_names_its_command(page):
    for heading, section, above in sections(page.read_text(encoding="utf-8")):
        if _FIGURE.search(section):
            assert _COMMAND.search(section + above), f"{heading}: which command made the figures?"
