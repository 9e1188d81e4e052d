"""A short part of the search, the same in each run; `make fuzz` searches on."""

import pytest

from fuzz.areas import AREAS
from fuzz.oracle import Area, explore

CASES = 24  # of an area that costs 1


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_every_case_works_or_is_refused_with_a_sentence(area: Area, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = explore(area, max(2, int(CASES / area.cost)), start=7)
    assert not found.failures, "\n\n".join(found.failures.values())
    assert found.tried == found.worked + found.refused > 0
