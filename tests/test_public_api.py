"""docs/public-api.md lists what the packages export, no more and no less."""

import importlib
import re
from pathlib import Path

import pytest

import agentsgym
from agentsgym.types import RolloutBatch

PAGE = (Path(__file__).parent.parent / "docs/public-api.md").read_text(encoding="utf-8")
SECTIONS = {
    re.sub("`", "", title): body
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}
PACKAGES = [title for title in SECTIONS if title.startswith("agentsgym")]
# Of what this package exports for the others, a part is public.
IN_PART = {"agentsgym.rollout"}


def named(section):
    """The names in the first column of the section's table."""
    cells = re.findall(r"^\| (`.*?) \|", SECTIONS[section], re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(.+?)`", cell)]


def test_the_packages_are_those_that_users_import():
    packages = {"envs", "credit", "rollout", "evaluation", "training", "checks"}
    assert set(PACKAGES) == {"agentsgym", *(f"agentsgym.{name}" for name in packages)}


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_those_that_the_package_exports(package):
    module = importlib.import_module(package)
    names = named(package)
    assert len(set(names)) == len(names)
    assert all(getattr(module, name) is not None for name in names)
    if package in IN_PART:
        assert set(names) < set(module.__all__)
    else:
        assert sorted(names) == sorted(module.__all__)


def test_what_an_author_overrides_exists():
    listed = SECTIONS["agentsgym.envs"].partition("Of `MultistepEnv`")[2].partition("([write")[0]
    names = re.findall(r"`(\w+)`", listed)
    assert len(names) > 15
    assert all(hasattr(agentsgym.MultistepEnv, name) for name in names)


def test_the_batch_has_the_keys():
    assert set(named("Keys of RolloutBatch")) == set(RolloutBatch([], all_steps=True))


@pytest.mark.parametrize("path", named("Integrations"))
def test_a_name_of_an_integration_is_where_the_page_says(path):
    module, _, name = path.rpartition(".")
    try:
        home = importlib.import_module(module)
        assert name in home.__all__
        assert getattr(home, name) is not None
    except ImportError as error:  # MissingExtra too
        assert error.name.partition(".")[0] != "agentsgym"
        pytest.skip(f"needs {error.name}")
    except RuntimeError as error:  # Axolotl has to be told by another error
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        pytest.skip(f"needs {error.__cause__.name}")


def test_other_names_exist():
    from agentsgym import generation, types

    others = re.findall(r"`(\w+)`", SECTIONS["Other packages"].replace("agentsgym.generation.", ""))
    assert set(others) == set(generation.__all__)
    assert {"Rollout", "Episode", "Step", "Row", "StepSpan"} <= set(types.__all__)
