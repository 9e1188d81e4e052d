"""A short part of the search, the same in each run; `make fuzz` searches on."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.areas import AREAS
from fuzz.oracle import Area

CASES = int(os.environ.get("FUZZ_CASES", "24"))  # of an area that costs 1
SEED = int(os.environ.get("FUZZ_SEED", "7"))
CASE_SECONDS = 120  # many times what any case takes on a busy machine


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_every_case_works_or_is_refused_with_a_sentence(area: Area, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    @seed(SEED)
    @settings(
        max_examples=max(2, int(CASES / area.cost)),
        database=None,
        deadline=CASE_SECONDS * 1000,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(area.cases)
    def search(case: Any) -> None:
        area.check(case)

    search()
