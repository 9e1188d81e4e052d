"""The page: one HTML file that needs no network and runs nothing but its own program.

The Content-Security-Policy allows our scripts and style by their hashes and nothing else; scripts
cannot turn text into markup. Data of a run is in it only as base64 of compressed JSON.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from agentsgym.report.viewer.blob import inert
from agentsgym.report.viewer.script import VENDOR, program, style, vendor

_WAITING = "The page is loading. It needs JavaScript and a browser of 2023 or later."


def page(data: Iterable[tuple[str, Any]], *, served: bool = False) -> Iterator[str]:
    """The parts of the file's text; `data` has the id and the value of each piece of data."""
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy(served)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
    yield f"<title>agentsgym</title>\n<style>{style()}</style>\n</head>\n"
    yield f'<body>\n<div id="app"><p>{_WAITING}</p></div>\n'
    for name, value in data:
        yield f'<script type="application/json" id="{name}">"{inert(value)}"</script>\n'
    for text in scripts():
        yield f"<script>{text}</script>\n"
    yield "</body>\n</html>\n"


def scripts() -> tuple[str, ...]:
    """The programs of the page, in their order."""
    return (*map(vendor, VENDOR), program())


@cache
def policy(served: bool) -> str:
    """The Content-Security-Policy. A served page may also ask its own server."""
    allowed = " ".join(_hash(text) for text in scripts())
    own = " connect-src 'self';" if served else ""
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style())};{own} "
        "img-src data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


@cache
def style_policy() -> str:
    """The Content-Security-Policy of a page that has our style and no program."""
    return (
        f"default-src 'none'; style-src {_hash(style())}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
