"""Docstrings are plain text with names between backticks, in which Sphinx sees reStructuredText."""

import re

_QUOTED = re.compile(r"(?<![`\w])`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def as_rst(lines: list[str]) -> list[str]:
    """The same docstring with names as references, which are links where they are documented, other
    code as literals, and stars and bars as they stand."""
    text = "\n".join(lines)
    parts = _QUOTED.split(text)
    for k in range(1, len(parts), 2):
        code = re.sub(r"\s+", " ", parts[k])
        parts[k] = f":py:obj:`{code}`" if _NAME.fullmatch(code) else f"``{code}``"
    for k in range(0, len(parts), 2):
        parts[k] = re.sub(r"(?<=\w)_(?=\W|$)|[*|\\](?=\S)", lambda m: "\\" + m[0], parts[k])
    return "".join(parts).split("\n")


def _convert(app, what, name, obj, options, lines):
    lines[:] = as_rst(lines)


def setup(app):
    # Before napoleon (500), which writes reStructuredText of its own.
    app.connect("autodoc-process-docstring", _convert, priority=400)
    return {"parallel_read_safe": True}
