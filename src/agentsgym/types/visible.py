"""Untrusted text on a terminal: characters that move the cursor or reverse text are escaped."""

import re

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
