"""What docs/public-api.md says is public, package by package."""

import importlib
import re
from pathlib import Path

LIST = "docs/public-api.md"
ENGINES = "docs/engines.md"
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^\| (`.+?) \| (.*) \|$", re.MULTILINE)
_QUOTED = re.compile(r"`(?:\w+\.)*(\w+)`")


def public_names(root: Path) -> dict[str, dict[str, str]]:
    """Package → name → what the list says of it, without what an earlier package has."""
    packages: dict[str, dict[str, str]] = {}
    for title, body in sections(root).items():
        if re.fullmatch(r"agentsgym(\.\w+)?", title):
            known = {name for names in packages.values() for name in names}
            named = {name: note for name, note in _lines(body) if name not in known}
            packages[title] = named
    text = (root / LIST).read_text(encoding="utf-8")
    engines = (root / ENGINES).read_text(encoding="utf-8")
    known = {name for names in packages.values() for name in names}
    for package, pages in (("agentsgym.generation", text), ("agentsgym.types", text + engines)):
        exported = set(importlib.import_module(package).__all__) - known
        quoted = dict.fromkeys(_QUOTED.findall(pages))
        packages[package] = {name: "" for name in quoted if name in exported}
    return {package: names for package, names in packages.items() if names}


def methods_of_authors(root: Path) -> list[str]:
    """What an author of an environment overrides of `MultistepEnv`, and `run_trial`."""
    listed = sections(root)["agentsgym.envs"].partition("Of `MultistepEnv`")[2]
    return re.findall(r"`(\w+)`", listed.partition("([write")[0])


def sections(root: Path) -> dict[str, str]:
    """Heading without backticks → text of each section of the list."""
    page = (root / LIST).read_text(encoding="utf-8")
    return {title.replace("`", ""): body for title, body in _SECTION.findall(page)}


def _lines(body: str) -> list[tuple[str, str]]:
    return [
        (name, note) for cell, note in _LINE.findall(body) for name in re.findall(r"`(\w+)`", cell)
    ]
