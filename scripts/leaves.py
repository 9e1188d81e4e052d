"""The trunk of the package and its leaves.

A leaf can be deleted together with its row in a table, and all else stays as it was. What only one
leaf imports is part of it, what only leaves import is theirs together, and the rest is the trunk.

python scripts/leaves.py                  the lists, with lines of Python
python scripts/leaves.py --json
python scripts/leaves.py --prove [NAME …] delete each leaf in a copy, and try what is left
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from test_architecture import all_imports, exporter, sources  # noqa: E402  # tests/ is no package

TABLES = (  # kind of leaf, file and name of the table, where the rows' modules are
    ("environments", "envs/builtin.py", "BUILTIN", "agentsgym.envs"),
    ("environments", "envs/builtin.py", "KNOWN", "agentsgym"),
    ("estimator", "credit/estimators/__init__.py", "NAMES", "agentsgym.credit.estimators"),
    ("engine", "generation/factory.py", "ENGINES", "agentsgym.generation"),
    ("rollouts", "training/collect.py", "SOURCES", "agentsgym.rollout"),
    ("export", "report/export/write.py", "WRITERS", "agentsgym.integrations"),
    ("command", "cli/app.py", "COMMANDS", "agentsgym.cli"),
)
INTEGRATIONS = "agentsgym.integrations."
"""Users name these themselves: they need no row."""
FILES = {"eval": "evaluate"}
"""The file of a command, where it has another name."""
KEPT = ("agentsgym.cli.train", "agentsgym.generation.embedded")
"""Rows of the trunk: what the proof runs."""
ROOTS = ("agentsgym", "agentsgym.__main__", "agentsgym.cli.app", *KEPT)

STEPS = "train quickstart train.max_steps=2 train.per_device_train_batch_size=16 eval.rollouts=4"
INSTEAD = {
    "twenty_questions": "env=Bandit model=tiny",
    "step_return": "train.advantage_estimator=rloo",
}
"""What the quickstart's steps get in place of a leaf that they use."""


@dataclass
class Leaf:
    """What a row names: `home` is its module or package; `rows` are places in files; `on` are the
    leaves that it imports."""

    kind: str
    home: str
    rows: set[tuple[Path, int, int]] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    on: set[str] = field(default_factory=set)


class Package:
    """What imports what, and whose it is."""

    def __init__(self) -> None:
        self.texts = sources()
        self.leaves: dict[str, Leaf] = {}
        for kind, file, name, base in TABLES:
            path = Path("src/agentsgym", file)
            for row, text in rows_of(ROOT / path, name):
                home = self._named(row, base)
                if home is not None and home not in KEPT:
                    kind = "integration" if home.startswith(INTEGRATIONS) else kind
                    leaf = self.leaves.setdefault(home.rpartition(".")[2], Leaf(kind, home))
                    leaf.rows.add((path, *place(row, text)))
        for module in self.texts:
            home = ".".join(module.split(".")[:3])
            if home.startswith(INTEGRATIONS):
                self.leaves.setdefault(home.removeprefix(INTEGRATIONS), Leaf("integration", home))
        for module, names in self.users.items():
            for name in names if len(names) == 1 else ():
                self.leaves[name].modules.add(module)
        for name, leaf in self.leaves.items():
            used = {target for module in leaf.modules for target in self.imports[module]}
            leaf.on = {self.below[target] for target in used & self.below.keys()} - {name}

    def _named(self, row: Sequence[ast.expr], base: str) -> str | None:
        """The child of `base` that a row names, by a path or by its end."""
        nodes = (node for part in row for node in ast.walk(part) if isinstance(node, ast.Constant))
        for text in sorted((str(node.value) for node in nodes), key=lambda text: "." not in text):
            name = FILES.get(text, text).replace("-", "_").strip(".")
            path = name if name.startswith(f"{base}.") else f"{base}.{name}"
            home = ".".join(path.split(".")[: max(3, base.count(".") + 2)])
            if home in self.texts and home != base:
                return home
        return None

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The modules that each one imports, or names in a text to import them later."""
        found: dict[str, set[str]] = {module: {module} for module in self.texts}
        for one in all_imports(self.texts):
            if (target := exporter(one.target, self.texts)) is not None:
                found[one.module].add(target)
        for module, text in self.texts.items():
            nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
            found[module] |= {node.value for node in nodes if node.value in self.texts}
            found[module] |= {module.rpartition(".")[0]} & self.texts.keys()
        return found

    @cached_property
    def below(self) -> dict[str, str]:
        """The leaf in whose home a module is."""
        return {
            module: name
            for name, leaf in self.leaves.items()
            for module in self.texts
            if f"{module}.".startswith(f"{leaf.home}.")
        }

    def reached(self, begin: Iterable[str], without: Collection[str]) -> set[str]:
        """The modules that some import, not through others."""
        seen, waiting = set[str](), list(begin)
        while waiting:
            module = waiting.pop()
            if module not in seen and module not in without:
                seen.add(module)
                waiting += self.imports[module]
        return seen

    @cached_property
    def trunk(self) -> set[str]:
        """What is imported without any leaf."""
        return self.reached(ROOTS, self.below)

    @cached_property
    def users(self) -> dict[str, set[str]]:
        """The leaves to which each module belongs that is not of the trunk."""
        found = defaultdict[str, set[str]](set)
        for name in self.leaves:
            own = {module for module, leaf in self.below.items() if leaf == name}
            for module in self.reached(own, (self.below.keys() | self.trunk) - own):
                found[module].add(name)
        for module in self.texts.keys() - self.trunk - found.keys():  # nobody imports it
            found[module] = {self.below[t] for t in self.imports[module] & self.below.keys()}
        return found

    def lines(self, modules: Iterable[str]) -> int:
        """Lines of Python."""
        return sum(self.texts[module].count("\n") for module in modules)

    def lists(self) -> dict[str, Any]:
        """The lists as plain data."""
        shared, packages = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for module, names in self.users.items():
            if len(names) != 1:
                shared[", ".join(sorted(names))].append(module)
        for module in self.trunk:
            packages[".".join(module.split(".")[:2])].append(module)
        leaves = [self._entry(one.modules, name, one) for name, one in self.leaves.items()]
        return {
            "leaves": sorted(leaves, key=lambda one: (one["kind"], -one["lines"])),
            "shared": [self._entry(modules, by) for by, modules in sorted(shared.items())],
            "trunk": [self._entry(modules, name) for name, modules in sorted(packages.items())],
        }

    def _entry(self, modules: Iterable[str], name: str, leaf: Leaf | None = None) -> dict[str, Any]:
        more = {} if leaf is None else {"kind": leaf.kind, "on": sorted(leaf.on)}
        files = sorted(str(file_of(module)) for module in modules)
        return {"name": name, "lines": self.lines(modules), **more, "files": files}

    def gone_with(self, name: str) -> list[str]:
        """A leaf and those that are on it."""
        names = [name]
        for one in names:
            names += [n for n, leaf in self.leaves.items() if one in leaf.on and n not in names]
        return names


def rows_of(path: Path, name: str) -> Iterator[tuple[Sequence[ast.expr], str]]:
    """The rows of a table, each with the text of its file; that of a mapping is key and value."""
    text = path.read_text("utf-8")
    for node in ast.walk(ast.parse(text)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if not any(isinstance(target, ast.Name) and target.id == name for target in targets):
            continue
        value = getattr(node, "value", None)
        if isinstance(value, ast.DictComp):
            value = value.generators[0].iter
        if isinstance(value, ast.Dict):
            yield from (((k, v), text) for k, v in zip(value.keys, value.values, strict=True) if k)
        elif isinstance(value, ast.Call | ast.Tuple):
            yield from (((e,), text) for e in (getattr(value, "elts", None) or value.args))


def place(row: Sequence[ast.expr], text: str) -> tuple[int, int]:
    """Where a row begins and ends in its file, in bytes, with the comma after it."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    end = starts[(row[-1].end_lineno or 0) - 1] + (row[-1].end_col_offset or 0)
    comma = text.encode()[end : end + 1] == b","
    return starts[row[0].lineno - 1] + row[0].col_offset, end + comma


def file_of(module: str) -> Path:
    """The file of a module, from the repository's root."""
    path = Path("src", *module.split("."))
    return path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")


def prove(package: Package, name: str, copy: Path) -> str:
    """What fails without a leaf and those that are on it; empty if nothing does."""
    gone = [package.leaves[one] for one in package.gone_with(name)]
    modules = set[str]().union(*(leaf.modules for leaf in gone))
    for module in sorted(package.texts.keys() - modules):
        if broken := package.imports[module] & modules:
            return f"{module} imports {', '.join(sorted(broken))}"
    for part in ("src", "docs", "tests"):
        shutil.rmtree(copy / part, ignore_errors=True)
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for module in modules:
        (copy / file_of(module)).unlink()
    rows = set[tuple[Path, int, int]]().union(*(leaf.rows for leaf in gone))
    for path, begin, end in sorted(rows, key=lambda row: row[1], reverse=True):
        text = (copy / path).read_bytes()
        (copy / path).write_bytes(text[:begin] + text[end:])
    instead = " ".join(INSTEAD.get(one, "") for one in package.gone_with(name))
    for words in (
        "-c import~agentsgym",
        "-m agentsgym --help",
        "-m pytest -q -p no:cacheprovider --noconftest tests/test_architecture.py",
        f"-m agentsgym {STEPS} {instead} -o {copy / 'runs' / name}",
    ):
        env = os.environ | {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *(word.replace("~", " ") for word in words.split())]
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
        if done.returncode:
            return f"{words}: {(done.stderr or done.stdout).strip()[-500:]}"
    return ""


def prove_all(names: Sequence[str]) -> int:
    """Delete each leaf in turn and print what comes of it; 1 if something fails, else 0."""
    package, failed = Package(), False
    with tempfile.TemporaryDirectory(prefix="leaves-") as folder:
        for name in names or package.leaves:
            problem = prove(package, name, Path(folder))
            failed |= bool(problem)
            print("BROKEN" if problem else "green", "without", *package.gone_with(name), flush=True)
            print(problem, end="\n" * bool(problem))
    return int(failed)


def show(lists: dict[str, Any]) -> None:
    """Print the lists, each with its sum."""
    for title, entries in lists.items():
        print(f"\n{title}: {sum(one['lines'] for one in entries):,} lines")
        for one in entries:
            on = f" (on {', '.join(one['on'])})" if one.get("on") else ""
            print(f"{one['lines']:7,}  {one.get('kind', ''):13}{one['name']}{on}")


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="the lists as JSON")
    parser.add_argument("--prove", nargs="*", metavar="NAME", help="delete each leaf in a copy")
    args = parser.parse_args()
    if args.prove is not None:
        return prove_all(args.prove)
    lists = Package().lists()
    print(json.dumps(lists, indent=2)) if args.json else show(lists)
    return 0


if __name__ == "__main__":
    sys.exit(main())
