"""The site has the navigation of docs/README.md: headings are captions, links are entries."""

import posixpath
import re
from pathlib import Path

import reference

CONTENTS = "docs/README.md"
REFERENCE = "Reference"  # the heading to which the pages of docstrings belong
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"^- \[(.+?)\]\(([^)#]+\.md)\)", re.MULTILINE)


def sections(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Heading → (title, path from the repository's root) of each page under it."""
    text = (root / CONTENTS).read_text(encoding="utf-8")
    return {
        heading: [(title, _from_root(link)) for title, link in _ENTRY.findall(body)]
        for heading, body in _SECTION.findall(text)
    }


def toctrees(root: Path) -> str:
    """The same as hidden directives at the end of the first page."""
    listed = sections(root)
    listed[REFERENCE] += reference.pages(root)
    parts = [_toctree("", [("All pages", CONTENTS)])]
    return "".join(parts + [_toctree(f":caption: {name}", listed[name]) for name in listed])


def _toctree(caption: str, entries: list[tuple[str, str]]) -> str:
    lines = "\n".join(f"{title} </{path.removesuffix('.md')}>" for title, path in entries)
    return f"\n```{{toctree}}\n:hidden:\n{caption}\n\n{lines}\n```\n"


def _from_root(link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(CONTENTS), link))


def _add(app, docname, source):
    if docname == app.config.root_doc:
        source[0] += toctrees(Path(app.srcdir))
        app.env.note_dependency(Path(app.srcdir) / CONTENTS)


def setup(app):
    app.connect("source-read", _add)
    return {"parallel_read_safe": True}
