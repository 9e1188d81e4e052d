"""Digests of nested values: a hash of what is exact, and of the floats a hash and four figures.

The order of keys, list or array or tuple, and directories in texts make no difference.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any

DIGITS = 6
TOLERANCE = 3e-6
"""Floats whose figures differ by less, relative to their norm, differ by rounding."""

Digest = str | list[Any]
_PATH = re.compile(r"(?:/[\w.@+~-]+){2,}")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


def digest(value: Any) -> Digest:
    """The hash of a value; with floats also their hash, number, sum, norm and a projection."""
    floats: list[float] = []
    exact = _hash(repr(_plain(value, floats)))
    if not floats:
        return exact
    rounded = _hash(" ".join(f"{_rounded(x):.{DIGITS}g}" for x in floats))
    projection = math.fsum(x * math.sin(0.7548776662 * k + 1) for k, x in enumerate(floats))
    figures = [math.fsum(floats), math.sqrt(math.fsum(x * x for x in floats)), projection]
    return [exact, rounded, len(floats), *(float(f"{x:.9g}") for x in figures)]


def compare(stored: Digest | None, now: Digest | None) -> str:
    """ "equal", "rounding" (the same but for the last digits of floats) or "differs"."""
    if stored == now:
        return "equal"
    if not (isinstance(stored, list) and isinstance(now, list)):
        return "differs"
    if (stored[0], stored[2]) != (now[0], now[2]):
        return "differs"
    if stored[1] == now[1]:
        return "equal"
    scale = TOLERANCE * stored[4] + 1e-9
    close = all(abs(a - b) <= scale for a, b in zip(stored[4:], now[4:], strict=True))
    return "rounding" if close else "differs"


def _plain(value: Any, floats: list[float]) -> Any:
    """The value in plain types, with its finite floats moved to `floats`."""
    if hasattr(value, "tolist"):  # an array, a tensor or one of their numbers
        value = value.tolist()
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"float {value}"
        floats.append(value)
        return "float"
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _ADDRESS.sub("ADDRESS", _PATH.sub(_last_name, value))
    if isinstance(value, Mapping):
        items = sorted((str(key), item) for key, item in value.items())
        return [(_plain(key, floats), _plain(item, floats)) for key, item in items]
    if isinstance(value, set | frozenset):
        return [_plain(item, floats) for item in sorted(value, key=repr)]
    if isinstance(value, list | tuple):
        return [_plain(item, floats) for item in value]
    return type(value).__name__


def _last_name(path: re.Match[str]) -> str:
    return "PATH/" + path[0].rpartition("/")[2]


def _rounded(number: float) -> float:
    return 0.0 if abs(number) < 1e-12 else number


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
