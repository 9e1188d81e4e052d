"""The size of the package: lines, code lines and files by folder, names that occur twice.

    python scripts/size.py [SOURCE_FOLDER]

Code lines are those without blank lines, comments, docstrings and imports. Class and module names
that occur in more than one place are listed, and how many imports stand inside functions.
"""

import ast
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Size:
    """What one file has."""

    lines: int
    code: int
    inner_imports: int
    classes: tuple[str, ...]


def size_of(path: Path) -> Size:
    """Measure a Python file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            left_out |= _span(node.body[0])
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= _span(node)
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    code = {
        line
        for token in tokens[1:-1]
        if token.type not in blank
        for line in range(token.start[0], token.end[0] + 1)
    }
    inner = [
        inside
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inside in node.body
        if isinstance(inside, ast.Import | ast.ImportFrom)
    ]
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return Size(len(text.splitlines()), len(code - left_out), len(inner), classes)


def _span(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def main(folder: Path) -> None:
    """Print the table and the lists."""
    sizes = {path: size_of(path) for path in sorted(folder.rglob("*.py"))}
    groups: dict[str, list[Size]] = {}
    for path, size in sizes.items():
        inside = path.relative_to(folder).parts
        groups.setdefault(inside[0] if len(inside) > 1 else ".", []).append(size)
    print(f"| {'folder':14} | {'lines':>6} | {'code':>6} | {'files':>5} | inner imports |")
    print("|---|---|---|---|---|")
    every = [("all", list(sizes.values()))]
    for name, group in [*sorted(groups.items(), key=lambda item: -sum_of(item[1]).lines), *every]:
        total = sum_of(group)
        figures = f"{total.lines:6} | {total.code:6} | {len(group):5} | {total.inner_imports}"
        print(f"| {name:14} | {figures} |")
    public = Counter(
        name for size in sizes.values() for name in size.classes if not name.startswith("_")
    )
    print("classes twice:", ", ".join(sorted(n for n, count in public.items() if count > 1)) or "-")
    modules = Counter(path.stem for path in sizes if path.stem != "__init__")
    print("modules twice:", ", ".join(sorted(n for n, count in modules.items() if count > 1)))
    print("over 400 lines:", ", ".join(p.name for p, size in sizes.items() if size.lines > 400))


def sum_of(group: list[Size]) -> Size:
    """The files of a folder together."""
    return Size(
        sum(size.lines for size in group),
        sum(size.code for size in group),
        sum(size.inner_imports for size in group),
        (),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "src/agentsgym"))
