"""The tables in the docs are those of the code."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _script():
    spec = importlib.util.spec_from_file_location("docs_tables", ROOT / "scripts/docs_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs_tables = _script()


SLOW = {"docs/tokens.md"}  # renders with every template of TRL


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page in SLOW else page
        for page in docs_tables.TABLES
    ],
)
def test_tables_are_those_of_the_code(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert docs_tables.filled(page, text) == text, "run python scripts/docs_tables.py"
