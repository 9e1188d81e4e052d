"""What the package imports is what `pyproject.toml` declares, extra by extra."""

import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from test_architecture import imports_of

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src/agentsgym"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "pydantic_core": "pydantic",
    "annotated_types": "pydantic",
    "huggingface_hub": "transformers",
    "fast_downward": "fast-downward-textworld",
}
# Which extras a folder or file may use, the nearest one counts. All else uses the base only.
EXTRAS = {
    "cli": {"train"},
    "envs/alfworld": {"alfworld", "textworld"},
    "envs/classical_reasoning": {"reasoning"},
    "envs/gymnasium.py": {"gymnasium"},
    "envs/mcp_tools.py": {"mcp"},
    "envs/textarena": {"textarena"},
    "envs/textworld": {"textworld"},
    "generation/embedded": {"train"},
    "generation/plain.py": {"train"},
    "generation/sampling.py": {"train"},
    "generation/serving": {"endpoint"},
    "generation/vllm": {"train"},
    "integrations/openenv": {"openenv"},
    "integrations/axolotl": {"axolotl"},
    "integrations/inspect": {"inspect"},
    "integrations/verifiers": {"verifiers"},
    "integrations/trl.py": {"train"},
    "rollout/ray": {"ray"},
    "runs": {"train"},
    "tokens/grammars.py": {"grammar"},
    "training": {"train"},
    "warm_start": {"train"},
}
BY_NAME = re.compile(r'\b(?:import_module|require)\(\s*"([\w.]+)"')


def names(requirements):
    """The distributions that a list of requirements names; extras of this package by their own."""
    for requirement in requirements:
        name, extras = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement).groups()
        if name == "agentsgym":
            for extra in extras.split(","):
                yield from names(PROJECT["optional-dependencies"][extra])
        else:
            yield name.lower()


def declared(extras):
    packages = set(names(PROJECT["dependencies"]))
    for extra in extras:
        packages |= set(names(PROJECT["optional-dependencies"][extra]))
    return packages


@cache
def imported(path):
    """The distributions that a file imports, by a statement or by a name in a call."""
    text = path.read_text(encoding="utf-8")
    modules = [one.target for one in imports_of("", text)] + BY_NAME.findall(text)
    names = {module.partition(".")[0] for module in modules} - {*sys.stdlib_module_names}
    return {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in names - {"agentsgym"}}


def allowed_extras(path):
    places = [path, *path.parents]
    return next((EXTRAS[str(place)] for place in places if str(place) in EXTRAS), set())


@pytest.mark.parametrize("extras", sorted({(), *(tuple(sorted(e)) for e in EXTRAS.values())}))
def test_imports_are_declared(extras):
    may = declared(extras)
    undeclared = {
        f"{path}: {name}"
        for path in (file.relative_to(SOURCES) for file in sorted(SOURCES.rglob("*.py")))
        if allowed_extras(path) == set(extras)
        for name in imported(SOURCES / path)
        if name not in may
    }
    assert not undeclared


def test_declared_packages_are_imported():
    used = {name for file in SOURCES.rglob("*.py") for name in imported(file)}
    assert set(names(PROJECT["dependencies"])) <= used
