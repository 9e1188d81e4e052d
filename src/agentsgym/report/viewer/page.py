"""The page: one HTML file that needs no network and runs nothing but its own program.

The Content-Security-Policy allows our scripts and style by their hashes and nothing else; scripts
cannot turn text into markup. Data of a run is in it only as base64 of compressed JSON, in which no
text of a model or a task can appear.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

_ASSETS = files("agentsgym.report.viewer") / "assets"
_WAITING = "The page is loading. It needs JavaScript and a browser of 2023 or later."


def page(data: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """The parts of the file's text; `data` has the id and the value of each piece of data."""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>agentsgym</title>\n<style>{style()}</style>\n</head>\n"
    )
    yield f'<body>\n<div id="app"><p>{_WAITING}</p></div>\n'
    for name, value in data:
        yield f'<script type="application/json" id="{name}">"{inert(value)}"</script>\n'
    for text in scripts():
        yield f"<script>{text}</script>\n"
    yield "</body>\n</html>\n"


def scripts() -> tuple[str, str]:
    """The programs of the page, in their order."""
    return _text("vendor/uPlot.iife.min.js"), program()


@cache
def policy() -> str:
    """The Content-Security-Policy."""
    allowed = " ".join(_hash(text) for text in scripts())
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style())}; "
        "img-src data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


# -- its parts -------------------------------------------------------------------------------------

_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "\./(?P<module>\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)


@cache
def program() -> str:
    """Our modules, each once in a scope of its own, after those that it imports."""
    done: dict[str, str] = {}
    _add("app", done)
    return '"use strict";\n' + "\n".join(done.values())


def _add(module: str, done: dict[str, str]) -> None:
    if module in done:
        return
    text = _text(f"js/{module}.js")
    for match in _IMPORT.finditer(text):
        _add(match["module"], done)
    exported = ", ".join(_EXPORT.findall(text))
    taken = _IMPORT.sub(r"const {\g<names>} = $_\g<module>;\n", text)
    body = _EXPORT.sub(lambda match: match[0].removeprefix("export "), taken)
    done[module] = f"const $_{module} = (() => {{\n{body}return {{ {exported} }};\n}})();"


@cache
def style() -> str:
    """The page's style."""
    return _text("vendor/uPlot.min.css") + _text("style.css")


def _text(path: str) -> str:
    return (_ASSETS / path).read_text(encoding="utf-8")


def inert(data: Any) -> str:
    """Gzipped JSON in base64."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    packed = gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode("ascii")
