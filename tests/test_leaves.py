"""The lists of scripts/leaves.py: each file is in one of them, and the trunk imports no leaf."""

import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from leaves import Package  # noqa: E402  # scripts/ is no package


@pytest.fixture(scope="module")
def package():
    return Package()


def test_every_file_is_in_one_of_the_lists(package):
    entries = [one for part in package.lists().values() for one in part]
    files = Counter(file for one in entries for file in one["files"])
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "src/agentsgym").rglob("*.py")}
    assert set(files) == there and set(files.values()) == {1}


def test_a_leaf_has_a_row_and_nothing_else_imports_it(package):
    for name, leaf in package.leaves.items():
        assert leaf.rows or leaf.kind == "integration", name
        assert leaf.modules or leaf.kind == "fault", name
        others = package.texts.keys() - set().union(
            *(package.leaves[one].modules for one in package.gone_with(name))
        )
        assert not [module for module in others if package.imports[module] & leaf.modules], name
