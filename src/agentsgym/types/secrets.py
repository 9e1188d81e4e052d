"""Keys and passwords never reach a message, a stored rollout or a file.

A key is remembered when it is taken into use; `mask_secrets` then replaces it wherever it stands,
also where a server echoes it. Credentials in URLs and bearer tokens are recognized by their form.
"""

import re

MASK = "***"

# Shorter words would blank out ordinary text.
_SHORTEST = 6
_KNOWN: set[str] = set()

_USER_INFO = re.compile(r"(?<=://)[^\s/?#@]+@")
_QUERY_KEY = re.compile(
    r"(?i)([?&](?:[\w-]*(?:key|token|secret|password|signature))=)[^\s&#\"']+",
)
# A digit tells a token from an ordinary word ("the bearer of ...").
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+(?=[a-z~+/._=-]*\d)[\w~+/.=-]{6,}")


def remember_secret(value: str) -> None:
    """Mask `value` from now on. Values of fewer than six characters are not remembered."""
    if len(value) >= _SHORTEST:
        _KNOWN.add(value)


def mask_secrets(text: str) -> str:
    """The text with every remembered secret, bearer token and URL credential replaced by `***`."""
    for secret in _KNOWN:
        text = text.replace(secret, MASK)
    text = _USER_INFO.sub(f"{MASK}@", text) if "://" in text else text
    text = _QUERY_KEY.sub(rf"\1{MASK}", text) if "=" in text else text
    return _BEARER.sub(rf"\1 {MASK}", text)
