"""The table of the package's environments agrees with the code, the extras and the docs; a missing
extra answers with the command that installs it."""

import tomllib
from pathlib import Path

import pytest

import agentsgym
from agentsgym.envs import extras, find
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
        env_class = find(name)
    except MissingExtra as error:
        pytest.skip(str(error))
    assert f"{env_class.__module__}.{env_class.__qualname__}" == env.path


def test_each_extra_is_declared_and_brings_the_module():
    for env in BUILTIN.values():
        if env.extra is not None:
            assert any(package.startswith(env.module) for package in EXTRAS[env.extra]), env.name


def test_each_page_has_an_environment():
    pages = {path.stem for path in (ROOT / "docs/environments").glob("*.md")} - {"README"}
    assert pages == {env.page for env in BUILTIN.values()}


@pytest.mark.parametrize("name", ["ALFWorld", "TextWorld", "TextArena/Sudoku", "Gymnasium/Taxi"])
def test_the_exact_command(monkeypatch, name):
    monkeypatch.setattr(extras, "installed", lambda module: False)
    with pytest.raises(extras.MissingExtra) as caught:
        agentsgym.make(name)
    assert caught.value.command == extras.install_command(BUILTIN[name].extra)
    assert caught.value.command in str(caught.value)


def test_require_imports_what_is_there_and_hides_no_errors(tmp_path, monkeypatch):
    assert extras.require("json.decoder", "x").JSONDecoder
    (tmp_path / "broken_module.py").write_text("import no_such_thing_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_thing_at_all"):
        extras.require("broken_module", "x")
    assert not extras.installed("no_such_package.part")
