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


def test_a_failure_is_found_and_described_once() -> None:
    from hypothesis import strategies as st

    def check(case: int) -> bool:
        if case > 3:
            raise KeyError(case)
        return case % 2 == 0

    found = explore(Area("broken", st.sampled_from(range(8)), check), 40, start=0)
    assert found.tried == found.worked + found.refused + found.failed
    assert found.failed >= 1 and found.worked >= 1 and found.refused >= 1
    [described] = found.failures.values()
    assert described.startswith("broken: KeyError")


def test_a_case_that_hangs_is_a_failure(monkeypatch) -> None:
    import time

    from hypothesis import strategies as st

    monkeypatch.setattr("fuzz.oracle.CASE_SECONDS", 0.1)
    found = explore(Area("slow", st.just(0), lambda _: bool(time.sleep(5))), 1, start=0)
    assert found.failed == 1 and "took longer than" in next(iter(found.failures.values()))
