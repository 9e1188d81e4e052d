"""Data inside a page: JSON, compressed, in characters that mean nothing to HTML."""

import base64
import gzip
import json
from typing import Any


def packed(data: Any) -> bytes:
    """Gzipped JSON in ASCII; lone surrogates and control characters are escapes."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)


def inert(data: Any) -> str:
    """`packed` in base64: no text of a model or a task can appear in it."""
    return base64.b64encode(packed(data)).decode("ascii")
