"""The reference: a page of docstrings for each package of docs/public-api.md, and `--help`.

The pages lie in docs/reference while the site is built, and git ignores them.
"""

import importlib
import inspect
import re
from collections.abc import Iterable
from pathlib import Path

import click
import typer
from docstrings import as_rst
from public_names import methods_of_authors, public_names

FOLDER = "docs/reference"
COMMANDS = "command-line"
# They have hundreds of fields, which docs/settings.md lists.
SIGNATURES = {"GRPOEnvConfig": "(**settings)"}
# Their public methods are TRL's and the trainer's own.
WITHOUT_MEMBERS = frozenset({"GRPOEnvConfig", "GRPOEnvTrainer"})
LINK = re.compile(r"\[(.+?)\]\(.+?\)")


def write(root: Path) -> None:
    """Write all pages."""
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    for stale in folder.glob("*.rst"):
        stale.unlink()
    authors = methods_of_authors(root)
    for package, names in public_names(root).items():
        page = package_page(package, names, authors)
        (folder / f"{package}.rst").write_text(page, encoding="utf-8")
    (folder / f"{COMMANDS}.rst").write_text(commands_page(), encoding="utf-8")


def pages(root: Path) -> list[tuple[str, str]]:
    """(title, path without suffix) of each page."""
    names = [*public_names(root), COMMANDS]
    return [("The command line" if n == COMMANDS else n, f"{FOLDER}/{n}") for n in names]


def package_page(package: str, names: dict[str, str], authors: Iterable[str]) -> str:
    """The docstrings of a package's names; what has none is said as in the list of names."""
    entries = [_documented(package, name, names[name], authors) for name in names]
    title = f"Reference: {package}"
    return "\n".join([title, "=" * len(title), "", f".. currentmodule:: {package}", "", *entries])


def _documented(package: str, name: str, summary: str, authors: Iterable[str]) -> str:
    value = getattr(importlib.import_module(package), name)
    if inspect.isclass(value):
        members = ", ".join(authors) if name == "MultistepEnv" else ""
        shown = "" if name in WITHOUT_MEMBERS else f"   :members: {members}\n"
        return f".. autoclass:: {name}{SIGNATURES.get(name, '')}\n{shown}"
    if inspect.isfunction(value):
        return f".. autofunction:: {name}\n"
    words = as_rst(LINK.sub(r"\1", summary))
    return f".. py:data:: {name}\n\n   {words}\n"


def commands_page() -> str:
    """What `--help` says of each command."""
    from agentsgym.cli.app import COMMANDS, app, loaded

    title = "The command line"
    group = typer.main.get_command(app)
    overview, _, _ = "\n".join(_help("agentsgym", group)).partition("\n   Commands:")
    parts = [title, "=" * len(title), "", overview, ""]
    for name in sorted(COMMANDS):
        path = f"agentsgym {name}"
        parts += [path, "-" * len(path), "", *_help(path, loaded(name))]
    return "\n".join(parts)


def _help(path: str, command: click.Command) -> list[str]:
    command.rich_markup_mode = None  # plain text instead of boxes
    width = {"max_content_width": 88, "terminal_width": 88}
    context = command.context_class(command, info_name=path, **width)
    lines = command.get_help(context).splitlines()
    return [".. code-block:: text", "", *(f"   {line}".rstrip() for line in lines), ""]


def setup(app):
    app.connect("builder-inited", lambda app: write(Path(app.srcdir)))
    return {"parallel_read_safe": True}
