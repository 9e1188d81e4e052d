"""The tables in the docs are those of the code."""

import importlib.util
import re
from pathlib import Path

import pytest

from agentsgym.credit import ESTIMATORS
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.loss.masks import MASKS
from agentsgym.training.loss.ratios import RATIO_SCOPES

ROOT = Path(__file__).parents[1]


def _script():
    spec = importlib.util.spec_from_file_location("docs_tables", ROOT / "scripts/docs_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs_tables = _script()


@pytest.mark.parametrize("page", docs_tables.TABLES)
def test_tables_are_those_of_the_code(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert docs_tables.filled(page, text) == text, "run python scripts/docs_tables.py"


@pytest.mark.slow  # renders with every template of TRL
def test_the_chat_templates_are_treated_as_the_file_says():
    text = (ROOT / docs_tables.TEMPLATES).read_text(encoding="utf-8")
    assert docs_tables.chat_templates() == text, "run python scripts/docs_tables.py"


# -- written by hand -------------------------------------------------------------------------------


def rows_of(head, page="credit-reference"):
    """The cells of each row of the table in a page of the docs whose first line begins so."""
    page = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    lines = page.partition(f"\n| {head} |")[2].partition("\n\n")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def bias_of(variant):
    """How a cell about the variant's bias begins."""
    if variant.error is None:
        return "not measured"
    measured = f"error {variant.error:.2f}, turned by {variant.turned:.2f}"
    return "none" if variant.error == 0.0 else measured


def test_the_page_has_the_bias_of_each_variant():
    rows = rows_of("estimator | advantage of step t of rollout i")
    stated = [(name, re.split("; | for ", bias)[0]) for name, _, bias in rows]
    assert stated == [
        (", ".join([f"`{e.name}`", *(f'`{k}="{x}"`' for k, x in v.options.items())]), bias_of(v))
        for e in ESTIMATORS.values()
        for v in e.variants
    ]


@pytest.mark.parametrize(
    ("head", "table"),
    [("`loss_type`", LOSSES), ("`ratio_scope`", RATIO_SCOPES), ("mask", MASKS)],
    ids=["losses", "scopes", "masks"],
)
def test_the_page_has_a_row_for_each(head, table):
    assert [row[0] for row in rows_of(head)] == [f"`{name}`" for name in table]


def test_the_page_has_the_published_bounds_of_each_mask():
    bounds = [row[2] for row in rows_of("mask")]
    assert bounds == [", ".join(map(str, mask.published)) for mask in MASKS.values()]
