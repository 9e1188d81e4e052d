"""Foreign text on a terminal: what would move the cursor or turn the text round is shown."""

import re

# Control characters (line ends and tabs are harmless), marks and overrides of the writing
# direction, line separators, and halves of surrogate pairs, which no terminal can be sent.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with each such character as its escape, `\\x1b` for instance."""
    return _HIDDEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
