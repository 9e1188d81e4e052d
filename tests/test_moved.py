"""What could be imported from 0.1 still can."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentsgym.moved import MOVED, MOVED_NAMES


def fresh(code: str) -> str:
    command = [sys.executable, "-W", "always::DeprecationWarning:__main__", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("old", sorted(MOVED))
def test_each_new_name_is_a_module(old):
    import importlib.util

    assert importlib.util.find_spec(f"agentsgym.{MOVED[old]}") is not None


def test_every_module_of_0_1_is_found():
    import importlib.util

    names = Path(__file__).with_name("modules_of_0_1.txt").read_text(encoding="utf-8").split()
    assert len(names) > 280
    gone = [name for name in names if importlib.util.find_spec(name) is None]
    assert gone == ["agentsgym.envs.rounds"]  # TrialInfo says what its functions said


def test_an_old_module_is_the_new_one_and_says_so():
    printed = fresh(
        "import agentsgym.testing.checks.masks as old, agentsgym.checks.rules.masks as new\n"
        "from agentsgym.envs.rows import task_dataset as one\n"
        "from agentsgym.envs import task_dataset as two\n"
        "import agentsgym\n"
        "print(old is new, one is two, agentsgym.testing is agentsgym.checks)\n"
    )
    assert "True True True" in printed
    assert "agentsgym.envs.rows is now agentsgym.envs.dataset" in printed
    assert "the old name will go with agentsgym 0.3" in printed


def test_modules_that_became_packages_keep_their_main_names():
    printed = fresh(
        "from agentsgym.generation.embedded import EmbeddedEngine\n"
        "from agentsgym.generation.vllm import VLLMEngine\n"
        "from agentsgym.generation.chat import ChatEngine\n"
        "from agentsgym.training.warm_start import WarmStartConfig, warm_start\n"
        "print(EmbeddedEngine.__name__, VLLMEngine.__name__, callable(warm_start))\n"
    )
    assert "EmbeddedEngine VLLMEngine True" in printed


@pytest.mark.parametrize(
    ("module", "name"), [(m, n) for m, names in MOVED_NAMES.items() for n in names]
)
def test_a_name_that_moved_is_found_where_it_was_and_says_so(module, name):
    import importlib

    home = f"agentsgym.{MOVED_NAMES[module][name]}"
    with pytest.warns(DeprecationWarning, match=f"{module}.{name} is now {home}.{name}; the old"):
        found = getattr(importlib.import_module(module), name)
    assert found is getattr(importlib.import_module(home), name)


def test_a_name_that_never_was_is_an_attribute_error():
    import agentsgym.report

    with pytest.raises(AttributeError, match=r"'agentsgym\.report' has no attribute 'nothing'"):
        agentsgym.report.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("agentsgym.evaluation.metrics", "summarise", "summarize"),
        ("agentsgym.envs.twenty_questions.normalize", "normalise", "normalize"),
        ("agentsgym.envs.twenty_questions.llm_answerer", "normalise", "normalize"),
    ],
)
def test_british_names_still_work_and_say_so(module, old, new):
    import importlib

    home = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{module}.{old} is now {new}; the old"):
        found = getattr(home, old)
    assert found is getattr(home, new)
