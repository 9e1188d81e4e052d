"""Keeps keys and passwords out of messages, stored rollouts and files.

A key is remembered when it is first used. `mask_secrets` then replaces it in any text, also in the
answers of a server. Credentials in URLs and bearer tokens are recognized by their form.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

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


def may_hold_known(json_text: bytes) -> bool:
    """Whether a remembered secret stands in a JSON text in UTF-8, as it stands or as JSON escapes
    it: in a string, or by chance in a number or across a string's end."""
    return any(_as_json(secret) in json_text for secret in _KNOWN)


@lru_cache(maxsize=64)
def _as_json(secret: str) -> bytes:
    return json.dumps(secret, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")


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
