"""What counts as right: a result, or one clear sentence, in time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis.strategies import SearchStrategy

LONGEST_SENTENCE = 3000


@dataclass(frozen=True)
class Area:
    """A kind of input. `check(case)` says whether the case worked (True) or was refused with a
    sentence (False), and raises for anything else. An area of `cost` 10 gets a tenth of the cases
    of one of cost 1."""

    name: str
    cases: SearchStrategy[Any]
    check: Callable[[Any], bool]
    cost: float = 1.0


def refused_with(error: BaseException) -> bool:
    """False, the outcome of a refusal, if what the error says is one readable sentence."""
    text = str(error)
    assert text.strip(), f"{type(error).__name__} says nothing"
    assert len(text) <= LONGEST_SENTENCE, f"{len(text)} characters: {text[:200]}"
    assert "Traceback (most recent call last)" not in text, text[:500]
    text.encode("utf-8")  # a lone surrogate would break whoever prints it
    assert not any(ord(c) < 32 and c not in "\n\t" for c in text), repr(text[:300])
    return False
