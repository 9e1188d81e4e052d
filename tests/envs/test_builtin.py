"""The table of the package's environments agrees with the code, the extras and the docs."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from agentsgym.envs import find
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.extras import MissingExtra, installed

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("name", BUILTIN)
def test_an_entry_names_its_class_and_its_page(name):
    env = BUILTIN[name]
    assert env.help.endswith(".") and (ROOT / f"docs/environments/{env.page}.md").exists()
    if env.module is not None and not installed(env.module):
        pytest.skip(f"needs the extra {env.extra}")
    try:
        found = find(name)
    except MissingExtra as error:
        pytest.skip(str(error))
    assert f"{found.__module__}.{found.__qualname__}" == env.path


def test_each_extra_is_declared_and_brings_the_module():
    for env in BUILTIN.values():
        if env.extra is not None:
            assert any(wanted.startswith(env.module) for wanted in EXTRAS[env.extra]), env.name


def test_each_page_has_an_environment():
    pages = {path.stem for path in (ROOT / "docs/environments").glob("*.md")} - {"README"}
    assert pages == {env.page for env in BUILTIN.values()}


def test_the_readme_names_them_all():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| environments |")]
    told = line.replace("Twenty Questions", "TwentyQuestions")
    assert all(name.partition("/")[0] in told for name in BUILTIN)
    assert f"{sum(env.page == 'textarena' for env in BUILTIN.values())} TextArena games" in told


def test_an_extra_goes_with_the_module_that_shows_it():
    with pytest.raises(TypeError, match="one of extra and module alone"):
        replace(BUILTIN["Bandit"], extra="textworld")
