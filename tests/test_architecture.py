"""The packages import in one direction, without circles; docs/architecture.md has the
table that this test reads."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "agentsgym"
PAGE = ROOT / "docs" / "architecture.md"

# `run_trial` and `_run_complete_episode` play what their environment is about.
UPWARD = {("agentsgym.envs.base", "agentsgym.rollout")}
# An environment knows its registered name, and the registry knows the class that it registers.
CIRCLES = {
    ("agentsgym.envs.base", "agentsgym.envs.registry"),
}
# torch, TRL and transformers at the top of a file: only where a model runs, in two files that are
# imported when one does, and in what only Axolotl imports.
HEAVY = {"torch", "trl", "transformers", "accelerate", "peft"}
HEAVY_PACKAGES = (
    "agentsgym.generation.embedded.",
    "agentsgym.generation.plain",
    "agentsgym.generation.sampling",
    "agentsgym.training.",
    "agentsgym.warm_start.fit",
    "agentsgym.warm_start.induction",
    "agentsgym.runs.callbacks",
    "agentsgym.integrations.axolotl.",
)


@dataclass(frozen=True)
class Import:
    """`module` imports `target` at `line`; `lazily` inside a function."""

    module: str
    target: str
    line: int
    lazily: bool


def sources() -> dict[str, str]:
    """The text of each module of the package, by its dotted name."""
    texts = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        texts[name] = path.read_text(encoding="utf-8")
    return texts


@cache
def imports_of(module: str, source: str) -> tuple[Import, ...]:
    """Every import statement, those for the type checker included."""
    return tuple(_imports_of(module, source))


def _imports_of(module: str, source: str) -> Iterator[Import]:
    for node, lazily in _nodes(ast.parse(source), False):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, lazily)
        elif isinstance(node, ast.ImportFrom):
            source_package = absolute(module, node)
            for alias in node.names:
                yield Import(module, f"{source_package}.{alias.name}", node.lineno, lazily)


def _nodes(node: ast.AST, lazily: bool) -> Iterator[tuple[ast.AST, bool]]:
    """A node and all below it, each with whether it stands in a function."""
    yield node, lazily
    lazily = lazily or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, lazily)


def absolute(module: str, node: ast.ImportFrom) -> str:
    """The dotted name that `from … import` names; `module` is no package where it is relative."""
    if node.level == 0:
        return node.module or ""
    return ".".join([*module.split(".")[: -node.level], *filter(None, [node.module])])


def all_imports(texts: dict[str, str]) -> list[Import]:
    return [name for module, text in texts.items() for name in imports_of(module, text)]


def package_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "agentsgym" and len(parts) > 1 else None


def packages() -> list[str]:
    """The packages in the order of the page's table."""
    table = PAGE.read_text(encoding="utf-8").partition("## Packages")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)/?`", table, flags=re.MULTILINE)


def upward(texts: dict[str, str]) -> list[str]:
    """Imports of a package that stands later in the table."""
    order = packages()
    wrong = []
    for one in all_imports(texts):
        here, there = package_of(one.module), package_of(one.target)
        if here not in order or there not in order or order.index(there) <= order.index(here):
            continue
        allowed = any(
            one.lazily and one.module == module and one.target.startswith(target)
            for module, target in UPWARD
        )
        if not allowed:
            wrong.append(f"{one.module}:{one.line} imports {one.target}")
    return wrong


def exporter(target: str, texts: dict[str, str]) -> str | None:
    """The module that an imported name comes from: through `__init__` files to where it stands."""
    if target in texts:
        return target
    package, _, name = target.rpartition(".")
    if package not in texts:
        return None
    for one in imports_of(package, texts[package]):
        if one.target.rpartition(".")[2] == name:
            return exporter(one.target, texts)
    return package


def circle(texts: dict[str, str]) -> list[str]:
    """A circle of modules that import each other, also inside functions; empty if there is none."""
    graph: dict[str, set[str]] = {module: set() for module in texts}
    allowed = UPWARD | CIRCLES
    for one in all_imports(texts):
        target = exporter(one.target, texts)
        free = any(one.module == m and one.target.startswith(t) for m, t in allowed)
        if target is not None and target != one.module and not free:
            graph[one.module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_the_page_names_every_package():
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(packages()) == there


def test_no_package_imports_one_that_stands_later():
    assert upward(sources()) == [], "docs/architecture.md has the order of the packages"


def test_no_modules_import_each_other():
    assert circle(sources()) == []


def test_torch_is_imported_at_the_top_only_where_a_model_runs():
    wrong = [
        f"{one.module}:{one.line} imports {one.target}"
        for one in all_imports(sources())
        if one.target.split(".")[0] in HEAVY
        and not one.lazily
        and not one.module.startswith(HEAVY_PACKAGES)
    ]
    assert wrong == []
