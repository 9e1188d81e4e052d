"""Values and texts of others: as plain data that a file can hold, safe on a terminal, without
secrets.

Values from environments, agents and datasets may be cyclic or deep, or be objects whose methods
raise. `plain` never raises because of them. A key or password is remembered when it is first used;
`mask_secrets` then replaces it in any text, also in the answers of a server. Credentials in URLs
and bearer tokens are recognized by their form.
"""

import json
import math
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from enum import Enum
from traceback import TracebackException
from typing import Any
from uuid import UUID

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


def docs_page(title: str) -> str:
    """A page of docs/ in a message: by its title, because an installed wheel has no such folder."""
    return f'"{title}" in the documentation'


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


def error_text(error: BaseException) -> str:
    """What an exception says, also one whose own method fails."""
    return str(TracebackException(type(error), error, None))


def named_error(error: BaseException) -> str:
    """The name of an exception and what it says, on one line."""
    text = " ".join(error_text(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def finite(value: float) -> float | None:
    """The number, or None if it is not finite."""
    return value if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """A copy of `value` made of dicts with str keys, lists, str, int, float, bool and None.

    Tuples and sets become lists, keys str, NumPy scalars and arrays numbers and lists, members of
    an enum their values, UUIDs their text. Infinite numbers and NaN become None. All other objects
    become a short repr. So does a value that JSON cannot say, such as a cyclic one; of a mapping
    only the items that it cannot say do.
    """
    try:
        return _through_json(value)
    except Exception:  # methods of a foreign class may raise anything
        if not isinstance(value, dict):
            return short_repr(value)
    return {_key(key): _through_json_or_repr(item) for key, item in value.items()}


def _through_json(value: Any) -> Any:
    return _DECODER.decode(clean_text(_ENCODER.encode(value)))


def _through_json_or_repr(value: Any) -> Any:
    try:
        return _through_json(value)
    except Exception:
        return short_repr(value)


def _for_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes):
        return list(value)
    to_list = getattr(value, "tolist", None)  # NumPy arrays and scalars, tensors
    return to_list() if callable(to_list) else short_repr(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_for_json)
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def _key(key: Any) -> str:
    return clean_text(key) if isinstance(key, str) else short_repr(key)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A value of lists and dicts with each text in it changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {map_texts(key, change): map_texts(one, change) for key, one in value.items()}
    return [map_texts(one, change) for one in value] if isinstance(value, list | tuple) else value


# -- text on a terminal -------------------------------------------------------------------------

# Control characters (except line ends and tabs), marks that change the writing direction, line
# separators, and lone surrogates, which cannot be written to a terminal.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with each such character replaced by its escape, for instance `\\x1b`."""
    return _HIDDEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
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
    text = mask_known(text)
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
