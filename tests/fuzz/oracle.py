"""What counts as right: a result, or one clear sentence, in time."""

import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

LONGEST_SENTENCE = 3000
CASE_SECONDS = 120.0  # many times what any case takes on a busy machine


class Hung(BaseException):
    """A case took longer than CASE_SECONDS. No `except Exception` swallows it."""


@dataclass(frozen=True)
class Area:
    """A kind of input. `check(case)` says whether the case worked (True) or was refused with a
    sentence (False), and raises for anything else. `cost` is the weight in sharing out cases:
    an area of cost 10 gets a tenth of the cases of one of cost 1."""

    name: str
    cases: SearchStrategy[Any]
    check: Callable[[Any], bool]
    cost: float = 1.0


@dataclass
class Found:
    """What a search counted: `tried` = `worked` + `refused` + `failed`. `failures` describes the
    first case of each kind of failure."""

    tried: int = 0
    worked: int = 0
    refused: int = 0
    failed: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def refused_with(error: BaseException) -> bool:
    """False, the outcome of a refusal, if what the error says is one readable sentence."""
    text = str(error)
    assert text.strip(), f"{type(error).__name__} says nothing"
    assert len(text) <= LONGEST_SENTENCE, f"{len(text)} characters: {text[:200]}"
    assert "Traceback (most recent call last)" not in text, text[:500]
    text.encode("utf-8")  # a lone surrogate would break whoever prints it
    assert not any(ord(c) < 32 and c not in "\n\t" for c in text), repr(text[:300])
    return False


def explore(area: Area, cases: int, start: int) -> Found:
    """Try `cases` cases, drawn from the seed `start`."""
    found = Found()
    while found.tried < cases:
        before = found.tried
        _search(area, cases - found.tried, start, found)
        start += 1
        if found.tried == before:  # the area has no further case
            break
    return found


def _search(area: Area, cases: int, start: int, found: Found) -> None:
    @seed(start)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(area.cases)
    def run(case: Any) -> None:
        found.tried += 1
        try:
            with within(CASE_SECONDS):
                worked = area.check(case)
        except (Exception, Hung, SystemExit) as error:
            found.failed += 1
            found.failures.setdefault(_kind(error), _described(area, case, error))
            return
        found.worked += worked
        found.refused += not worked

    run()


def _kind(error: BaseException) -> str:
    """Failures with the same exception from the same line count as one kind."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno}"


def _described(area: Area, case: Any, error: BaseException) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__)[-5:])
    what = f"{type(error).__name__}: {error}"
    return f"{area.name}: {what[:1500]}\ncase: {repr(case)[:1500]}\n{frames}"


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises Hung in the main thread when the time is over."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise Hung(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
