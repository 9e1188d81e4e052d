"""The trunk of the package and its leaves.

A leaf can be deleted together with its row in a table, and all else stays as it was. What only it
imports is part of it, what only leaves import is theirs (a branch), and the rest is the trunk.

python scripts/leaves.py                  the lists, with lines of Python
python scripts/leaves.py --json
python scripts/leaves.py --prove [NAME …] delete each leaf in a copy, and try what is left
"""

import argparse
import ast
import itertools
import json
import os
import re
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
    ("environments", "envs/builtin.py", "(BUILTIN|KNOWN)", "agentsgym"),
    ("estimator", "credit/estimators/__init__.py", "NAMES", "agentsgym.credit.estimators"),
    ("engine", "generation/factory.py", "ENGINES", "agentsgym.generation"),
    ("rollouts", "training/collect.py", "SOURCES", "agentsgym.rollout"),
    ("part of a run", "runs/parts.py", "PARTS", "agentsgym.runs"),
    ("integration", "report/export/write.py", "WRITERS", "agentsgym.integrations"),
    ("tool format", "tokens/tool_formats/__init__.py", "NAMES", "agentsgym.tokens.tool_formats"),
    ("fault", "report/doctor/faults.yaml", "", "agentsgym.report.doctor.faults"),
    ("command", "cli/app.py", "COMMANDS", "agentsgym.cli"),
)
INTEGRATIONS = "agentsgym.integrations."  # users name these themselves: they need no row
ROOTS = ("agentsgym", "agentsgym.__main__", "agentsgym.cli.app")
ROOTS += ("agentsgym.cli.train", "agentsgym.generation.embedded")  # rows, and yet of the trunk

STEPS = "train {} train.max_steps=2 train.per_device_train_batch_size=16 eval.rollouts=4"
INSTEAD = {  # of the quickstart, without a leaf that it uses
    "twenty_questions": "explore warm_start.steps=2",
    "step_return": "quickstart train.advantage_estimator=rloo",
}

Row = tuple[Path, int, int]  # a place in a file, in bytes


@dataclass
class Leaf:
    """What a row names: `home` is its module or package; `on` are the leaves that it imports."""

    kind: str
    home: str
    rows: set[Row] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    on: set[str] = field(default_factory=set)


class Package:
    """What imports what, and whose it is."""

    def __init__(self) -> None:
        self.texts = sources()
        self.leaves: dict[str, Leaf] = {}
        for kind, file, table, base in TABLES:
            for texts, row in rows_of(ROOT / "src/agentsgym" / file, table):
                if (home := self._home(texts, base)) not in (None, *ROOTS):
                    leaf = self.leaves.setdefault(str(home).split(".")[-1], Leaf(kind, str(home)))
                    leaf.rows.add(row)
        for module in self.texts:
            home = ".".join(module.split(".")[:3])
            if home.startswith(INTEGRATIONS):
                self.leaves.setdefault(home.removeprefix(INTEGRATIONS), Leaf("integration", home))
        for module, (name, *others) in self.users.items():
            if not others:
                self.leaves[name].modules.add(module)
        owners = {module: name for name, leaf in self.leaves.items() for module in leaf.modules}
        for name, leaf in self.leaves.items():
            used = set[str]().union(*(self.imports[module] for module in leaf.modules))
            leaf.on = {owners[target] for target in used & owners.keys()} - {name}

    def _home(self, texts: Sequence[str], base: str) -> str | None:
        """The child of `base` that a row names, by a path or by its end."""
        for text in sorted(texts, key=lambda text: "." not in text):
            name = text.replace("-", "_").strip(".")
            path = name if name.startswith(f"{base}.") else f"{base}.{name}"
            home = ".".join(path.split(".")[: max(3, base.count(".") + 2)])
            if (home in self.texts and home != base) or base.endswith(".faults"):
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
            names = {str(getattr(node, "value", "")) for node in ast.walk(ast.parse(text))}
            found[module] |= {*names, module.rpartition(".")[0]} & self.texts.keys()
        return found

    @cached_property
    def below(self) -> dict[str, str]:
        """The leaf in whose home a module is."""
        homes = [(name, f"{leaf.home}.") for name, leaf in self.leaves.items()]
        return {m: name for name, home in homes for m in self.texts if f"{m}.".startswith(home)}

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
    def users(self) -> dict[str, set[str]]:
        """The leaves to which each module belongs that is not of the trunk."""
        found = defaultdict[str, set[str]](set)
        self.trunk = self.reached(ROOTS, self.below)
        for name in self.leaves:
            own = {module for module, leaf in self.below.items() if leaf == name}
            for module in self.reached(own, (self.below.keys() | self.trunk) - own):
                found[module].add(name)
        for module in self.texts.keys() - self.trunk - found.keys():  # nobody imports it
            found[module] = {self.below[t] for t in self.imports[module] & self.below.keys()}
        faults = {name for name, leaf in self.leaves.items() if leaf.kind == "fault"}
        return {module: names - faults or names for module, names in found.items()}

    def lists(self) -> dict[str, list[dict[str, Any]]]:
        """The lists: of each part its lines and files, and the leaves it belongs to or is on."""
        parts = defaultdict[tuple[str, str, str, tuple[str, ...]], list[str]](list)
        for name, leaf in self.leaves.items():
            parts["leaves", name, leaf.kind, (*sorted(leaf.on),)] += leaf.modules
        for module, names in self.users.items():
            if len(names) != 1:
                parts["branches", "", "", (*sorted(names),)].append(module)
        for module in self.trunk:
            parts["trunk", ".".join(module.split(".")[:2]), "", ()].append(module)
        found: dict[str, list[dict[str, Any]]] = {"leaves": [], "branches": [], "trunk": []}
        for (title, name, kind, of), modules in sorted(parts.items()):
            lines = sum(self.texts[module].count("\n") for module in modules)
            files = sorted(str(file_of(module)) for module in modules)
            name = name or os.path.commonpath(files).removeprefix("src/agentsgym/")
            one = {"name": name, "kind": kind, "lines": lines, "of": of, "files": files}
            found[title].append(one)
        return {
            t: sorted(part, key=lambda o: (o["kind"], -o["lines"])) for t, part in found.items()
        }

    def gone_with(self, name: str) -> list[str]:
        """A leaf and those that are on it."""
        names = [name]
        for one in names:
            names += [n for n, leaf in self.leaves.items() if one in leaf.on and n not in names]
        return names


def rows_of(path: Path, name: str) -> Iterator[tuple[Sequence[str], Row]]:
    """The rows of a table, each with the texts in it; of a file in YAML all."""
    source, here = path.read_bytes(), path.relative_to(ROOT)
    if path.suffix == ".yaml":
        for match in re.finditer(rb"^(\w+):\n(?: .*\n|\n)+", source, re.MULTILINE):
            yield [match[1].decode()], (here, *match.span())
        return
    starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not re.match(
            rf"{name}\b", ast.unparse(node)
        ):
            continue
        value: Any = node.value
        value = value.generators[0].iter if isinstance(value, ast.DictComp) else value
        ends: Any = getattr(value, "elts", getattr(value, "args", getattr(value, "values", ())))
        for first, last in zip(getattr(value, "keys", ends), ends, strict=True):
            begin = starts[first.lineno - 1] + first.col_offset
            end = starts[last.end_lineno - 1] + last.end_col_offset
            nodes = [*ast.walk(first), *ast.walk(last)]
            texts = [str(one.value) for one in nodes if isinstance(one, ast.Constant)]
            yield texts, (here, begin, end + (source[end : end + 1] == b","))


def file_of(module: str) -> Path:
    """The file of a module, from the repository's root."""
    path = Path("src", *module.split("."))
    return path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")


def prove(package: Package, name: str, copy: Path) -> str:
    """What fails without a leaf and those that are on it; empty if nothing does."""
    gone = [package.leaves[one] for one in package.gone_with(name)]
    modules = {module for leaf in gone for module in leaf.modules}
    for module in sorted(package.texts.keys() - modules):
        if broken := package.imports[module] & modules:
            return f"{module} imports {', '.join(sorted(broken))}"
    for part in ("src", "docs", "tests"):
        shutil.rmtree(copy / part, ignore_errors=True)
        shutil.copytree(ROOT / part, copy / part)
    for module in modules:
        (copy / file_of(module)).unlink()
    for path, begin, end in sorted({row for leaf in gone for row in leaf.rows}, reverse=True):
        text = (copy / path).read_bytes()
        (copy / path).write_bytes(text[:begin] + text[end:])
    preset = INSTEAD.get(name, "quickstart")
    for words in (
        "-m agentsgym --help",
        "-m pytest -q -p no:cacheprovider --noconftest tests/test_architecture.py",
        f"-m agentsgym {STEPS.format(preset)} -o {copy / 'runs' / name}",
    ):
        env = os.environ | {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *words.split()]
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
        if done.returncode:
            return f"{words}: {(done.stderr or done.stdout).strip()[-500:]}"
    return ""


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="the lists as JSON")
    parser.add_argument("--prove", nargs="*", metavar="NAME", help="delete each leaf in a copy")
    args, package, failed = parser.parse_args(), Package(), False
    if args.prove is not None:
        with tempfile.TemporaryDirectory(prefix="leaves-") as folder:
            for name in args.prove or package.leaves:
                problem = prove(package, name, Path(folder))
                failed |= bool(problem)
                gone = "without " + " ".join(package.gone_with(name))
                print("BROKEN" if problem else "green", gone, problem, flush=True)
        return int(failed)
    lists = package.lists()
    if args.json:
        print(json.dumps(lists, indent=2))
        return 0
    for title, entries in lists.items():
        print(f"\n{title}: {sum(one['lines'] for one in entries):,} lines")
        for one in entries:
            of = f"  (of {', '.join(one['of'])})" if one["of"] else ""
            print(f"{one['lines']:7,}  {one['kind']:14}{one['name']}{of}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
