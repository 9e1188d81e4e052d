"""The page's program: our modules joined into one, in the order of their imports."""

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "\./(?P<module>\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
_FIRST = "app"
VENDOR = ("uPlot.iife.min.js", "virtual-core.iife.min.js")


def assets() -> Traversable:
    """The folder of the page's parts."""
    return files("agentsgym.report.viewer") / "assets"


@cache
def program() -> str:
    """Every module once, each in a scope of its own, after those that it imports."""
    done: dict[str, str] = {}
    _add(_FIRST, done)
    return '"use strict";\n' + "\n".join(done.values())


def _add(module: str, done: dict[str, str]) -> None:
    if module in done:
        return
    text = (assets() / "js" / f"{module}.js").read_text(encoding="utf-8")
    for found in _IMPORT.finditer(text):
        _add(found["module"], done)
    exported = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub(lambda found: found[0].removeprefix("export "), _IMPORT.sub(_taken, text))
    done[module] = f"const $_{module} = (() => {{\n{body}return {{ {exported} }};\n}})();"


def _taken(found: re.Match[str]) -> str:
    return f"const {{{found['names']}}} = $_{found['module']};\n"


@cache
def vendor(name: str) -> str:
    """A file by others."""
    return (assets() / "vendor" / name).read_text(encoding="utf-8")


@cache
def style() -> str:
    """The page's style."""
    return vendor("uPlot.min.css") + (assets() / "style.css").read_text(encoding="utf-8")
