"""Docstrings are plain text with names between backticks, in which Sphinx sees reStructuredText."""

import re
from collections.abc import Container
from functools import cache
from pathlib import Path

from public_names import public_names

_QUOTED = re.compile(r"(?<![`\w])`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
# How the parser of signatures is given NDArray[int64].
_ARRAY = re.compile(
    r"~numpy\.ndarray\[tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[~numpy\.(\w+)\]\]"
)


def as_rst(text: str, public: Container[str] = ()) -> str:
    """The same text with names as references, which are links where they are documented, other code
    as literals, and stars and bars as they stand. A `public` name is found from any package."""
    parts = _QUOTED.split(text)
    for k in range(1, len(parts), 2):
        code = re.sub(r"\s+", " ", parts[k])
        name = f".{code}" if code in public else code
        parts[k] = f":py:obj:`{name}`" if _NAME.fullmatch(code) else f"``{code}``"
    for k in range(0, len(parts), 2):
        parts[k] = re.sub(r"(?<=\w)_(?=\W|$)|[*|\\](?=\S)", lambda m: "\\" + m[0], parts[k])
    return "".join(parts)


def _convert(app, what, name, obj, options, lines):
    lines[:] = as_rst("\n".join(lines), _public(app.srcdir)).split("\n")


@cache
def _public(root):
    return frozenset(n for names in public_names(Path(root)).values() for n in names)


def _shorten(app, what, name, obj, options, signature, returned):
    if getattr(obj, "_is_protocol", False):
        return "", None
    return tuple(text and _readable(text) for text in (signature, returned))


def _readable(signature):
    """Without what the parser of signatures cannot read: the forms of defaults that are objects."""
    short = _ARRAY.sub(r"ndarray[\1]", signature).replace("<factory>", "...")
    return re.sub(r"= <(?:function|bound method) ([\w.]+).*?>+(?=[,)])", r"= \1", short)


def setup(app):
    # Before napoleon (500), which writes reStructuredText of its own.
    app.connect("autodoc-process-docstring", _convert, priority=400)
    app.connect("autodoc-process-signature", _shorten)
    return {"parallel_read_safe": True}
