"""One generated game of each task type, shared by the folder's tests."""

import pytest

pytest.importorskip("alfworld", reason="needs the extra agentsgym[alfworld]")
pytest.importorskip("fast_downward", reason="needs the extra agentsgym[alfworld]")

from agentsgym.envs.alfworld.env import generated_tasks
from agentsgym.envs.alfworld.generator import TASK_TYPES


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("alfworld") / "agentsgym"


@pytest.fixture(scope="session")
def tasks(cache_dir):
    """Task data by task type."""
    made = generated_tasks(cache_dir, "train", list(TASK_TYPES), 6)
    return {task["task_type"]: task for task in made}


@pytest.fixture(autouse=True)
def _allowed(cache_dir, monkeypatch):
    """The tests' games are in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir.parent))


@pytest.fixture
def task(tasks):
    return tasks["pick_and_place_simple"]
