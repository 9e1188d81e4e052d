"""Values and texts of others: as plain data that a file can hold, safe on a terminal, without
secrets.

Values from environments, agents and datasets may be cyclic, deep or huge, or be objects whose
methods raise. `plain` never raises because of them, and the size of its result is bounded. A key or
password is remembered when it is first used; `mask_secrets` then replaces it in any text, also in
the answers of a server. Credentials in URLs and bearer tokens are recognized by their form.
"""

import itertools
import math
import re
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

T = TypeVar("T")

_DEEPEST = 64
_MOST_VALUES = 1_000_000
_REPR_COST = 1_000  # one repr counts as this many values, because it takes about as long
_INT_BITS = 1_000

_REPR = reprlib.Repr()
_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = 8
_REPR.maxset = _REPR.maxfrozenset = _REPR.maxdeque = 8
_REPR.maxstring = _REPR.maxother = 160
_REPR.maxlevel = 4


def clean_text(text: str) -> str:
    """The text without lone surrogates: pairs are joined, single ones become U+FFFD.

    A JSON answer may contain one (`"\\ud800"`); tokenizers and UTF-8 files do not accept it.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def cut(text: str, most: int) -> str:
    """The text; if it is longer than `most` characters, only its beginning and end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"


def short_repr(value: Any, most: int = 600) -> str:
    """A repr of about `most` characters at most, also for values that are deep or cyclic."""
    try:
        return clean_text(cut(_REPR.repr(value), most))
    except Exception:  # a foreign __repr__ may raise anything
        return f"<{type(value).__name__}>"


def finite(value: float) -> float | None:
    """The number, or None if it is not finite."""
    return value if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """A copy of `value` made of dicts with str keys, lists, str, int, float, bool and None.

    Tuples and sets become lists, keys str, NumPy scalars and arrays numbers and lists, members of
    an enum their values, UUIDs their text. Infinite
    numbers and NaN become None. All other objects become a short repr, and so do values nested
    deeper than 64 levels or inside themselves. Values after the first million are dropped.
    """
    return _Copy().of(value, _DEEPEST)


class _Copy:
    """One copy in progress: the number of values it may still hold, and the open containers."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES
        self._around: set[int] = set()

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return clean_text(value)
        if kind is float:
            return value if math.isfinite(value) else None
        if kind is int and value.bit_length() <= _INT_BITS:
            return value
        if kind is int or depth == 0 or id(value) in self._around:
            return self._shown(value)
        self._around.add(id(value))
        try:
            return self._of_other(value, depth - 1)
        except Exception:  # methods of a foreign class may raise anything
            return self._shown(value)
        finally:
            self._around.discard(id(value))

    def _of_other(self, value: Any, depth: int) -> Any:
        if type(value) is dict or isinstance(value, Mapping):
            return {_key(k): self.of(item, depth) for k, item in self._first(value.items())}
        if isinstance(value, Enum):
            return self.of(value.value, depth)
        if isinstance(value, str | UUID):
            return clean_text(str.__str__(value) if isinstance(value, str) else str(value))
        if isinstance(value, int):
            return self.of(int.__int__(value), depth)
        if isinstance(value, float):
            return self.of(float.__float__(value), depth)
        if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
            return [self.of(item, depth) for item in self._first(value)]
        item = getattr(value, "tolist", None)  # NumPy arrays and scalars, tensors
        return self.of(item(), depth) if callable(item) else self._shown(value)

    def _first(self, items: Collection[T]) -> Iterable[T]:
        allowed = max(self._left, 0)
        self._left -= len(items)
        return items if len(items) <= allowed else itertools.islice(items, allowed)

    def _shown(self, value: Any) -> str:
        self._left -= _REPR_COST
        return short_repr(value)


def _key(key: Any) -> str:
    if type(key) is str:
        return clean_text(key)
    return clean_text(str(key)) if isinstance(key, str | float | bool) else short_repr(key)


# -- text on a terminal -------------------------------------------------------------------------

# Control characters (except line ends and tabs), marks that change the writing direction, line
# separators, and lone surrogates, which cannot be written to a terminal.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with each such character replaced by its escape, for instance `\\x1b`."""
    return _HIDDEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


# -- secrets ------------------------------------------------------------------------------------

MASK = "***"

# Masking shorter values would remove ordinary words.
_SHORTEST = 6
_KNOWN: set[str] = set()

_USER_INFO = re.compile(r"(?<=://)[^\s/?#@]+@")
_QUERY_KEY = re.compile(
    r"(?i)([?&](?:[\w-]*(?:key|token|secret|password|signature))=)[^\s&#\"']+",
)
# A token has a digit; an ordinary word has none ("the bearer of ...").
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+(?=[a-z~+/._=-]*\d)[\w~+/.=-]{6,}")
_MASKED = re.compile(r"://\*\*\*@|[?&][\w-]+=\*\*\*|(?i:bearer|basic) \*\*\*")
_SECRET_KEY = re.compile(
    r"(?i)(api_?key|secret|passw(or)?d|credentials?|(access|api|auth|bearer|hf|hub)_?token)$"
)


def remember_secret(value: str) -> None:
    """Mask `value` from now on. Values shorter than six characters are not remembered."""
    if len(value) >= _SHORTEST:
        _KNOWN.add(value)


def mask_secrets(text: str) -> str:
    """The text with every remembered secret, bearer token and URL credential replaced by `***`."""
    for secret in _KNOWN:
        text = text.replace(secret, MASK)
    text = _USER_INFO.sub(f"{MASK}@", text) if "://" in text else text
    text = _QUERY_KEY.sub(rf"\1{MASK}", text) if "=" in text else text
    return _BEARER.sub(rf"\1 {MASK}", text)


def mask_known(text: str) -> str:
    """The text with every remembered secret replaced, and nothing else changed."""
    for secret in _KNOWN:
        text = text.replace(secret, MASK)
    return text


def masked(value: Any, key: str = "") -> Any:
    """A configuration value that is safe to store: values under keys such as `api_key` are `***`
    and all other texts are masked."""
    if isinstance(value, str):
        return MASK if value and _SECRET_KEY.search(key) else mask_secrets(value)
    if isinstance(value, Mapping):
        return {name: masked(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, key) for item in value]
    return value


def secrets_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The texts under keys such as `api_key`, and the texts that `masked` has changed, each with
    its dotted key."""
    if isinstance(value, str):
        if _SECRET_KEY.search(path) or _MASKED.search(value):
            yield path, value
        return
    inner: Mapping[Any, Any] = {}
    if isinstance(value, Mapping | list | tuple):
        inner = value if isinstance(value, Mapping) else dict(enumerate(value))
    for name, item in inner.items():
        yield from secrets_in(item, f"{path}.{name}".lstrip("."))
