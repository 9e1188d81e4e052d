"""The viewer in a terminal, driven as by keys."""

import asyncio

import pytest
from textual.widgets import DataTable, Input, Static

from agentsgym.report.tui import Viewer, conversation
from agentsgym.report.viewer.source import Source
from agentsgym.runs.files import read_lines
from helpers import build_tokenizer
from viewer_runs import HOSTILE, make_hostile_run, make_run


def driven(source, *keys):
    """What the list and the rollout show after these keys."""

    async def drive():
        app = Viewer(source)
        async with app.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            await pilot.press(*keys)
            await pilot.pause()
            table = app.query_one("#list", DataTable)
            rows = [[str(cell) for cell in table.get_row_at(n)] for n in range(table.row_count)]
            return rows, str(app.query_one("#rollout", Static).render()), app.query_one(Input).value

    return asyncio.run(drive())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("tui") / "run", build_tokenizer(None))


def test_moving_in_the_list_shows_rollouts(run):
    rows, shown, _ = driven(Source(run), "down", "down")
    assert len(rows) == 6 and rows[2] == ["2", "0", "0", "2", "word 2"]
    assert shown.startswith("group 2, rollout 0: word 2") and "Is it thing 0?" in shown


def test_a_search_leaves_what_says_it(run):
    rows, shown, typed = driven(Source(run), "slash", *"word 3", "enter")
    assert [row[4] for row in rows] == ["word 3"] and "word 3" in shown and typed == "word 3"


def test_hostile_texts_are_shown_as_text(tmp_path):
    run = make_hostile_run(tmp_path / "run", build_tokenizer(None))
    rows, _, _ = driven(Source(run))
    assert len(rows) == 9
    said = [conversation(line).plain for line in read_lines(run)]
    assert not [text for text in said if "\x1b" in text or "\u202e" in text]
    assert "\\x1b[31mred" in said[4] and HOSTILE["script"] in said[0]
