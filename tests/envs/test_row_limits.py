"""What one dataset row may ask for, and which classes it may name."""

import subprocess
import sys

import pytest

from agentsgym.envs import ConfigError, EnvPool, UnknownEnvironment, make
from agentsgym.rollout.processes import worker as worker_processes


def row(name, config=None, **task):
    return {"env_class_path": name, "env_config": config or {}, "task_data": task}


INSIDE = [
    "agentsgym.envs.textarena.env.TextArenaEnv",
    "agentsgym.envs.base.MultistepEnv",
    "agentsgym.envs.gymnasium.GymnasiumEnv",
    "agentsgym.rollout.processes.serve.main",
    "agentsgym.cli.app.main",
    "agentsgym.nothing.TwentyQuestionsEnv",
]


@pytest.mark.parametrize("path", INSIDE)
@pytest.mark.parametrize("allowed", [False, True])
def test_a_path_inside_the_package_that_is_no_environment_is_refused(path, allowed):
    with pytest.raises(UnknownEnvironment, match="no environment is registered as 'agentsgym"):
        EnvPool(trust=allowed).get(row(path))


def test_rows_import_no_module_of_the_package_but_environments():
    script = (
        "import sys\n"
        "from agentsgym.envs import EnvPool, UnknownEnvironment\n"
        f"for path in {INSIDE!r}:\n"
        "    try:\n"
        "        EnvPool().get({'env_class_path': path, 'env_config': {}, 'task_data': {}})\n"
        "    except UnknownEnvironment:\n"
        "        pass\n"
        "odd = {'agentsgym.__main__', 'agentsgym.cli.app', 'agentsgym.rollout.processes.serve'}\n"
        "sys.exit(' '.join(odd & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("Bandit", {"episodes_per_trial": 10**6}, "100000 actions in a trial, got 8000000"),
        ("ClassicalReasoning", {"attempts": 10**6}, "100000 actions"),
    ],
)
def test_a_row_that_asks_for_too_much_is_refused_before_anything_is_played(name, config, message):
    with pytest.raises(ConfigError, match=message):
        EnvPool().get(row(name, config, seed=1))
    assert make(name, None, config).config  # the user's own may be as large as they like


def test_an_object_that_was_handed_over_plays_rows_beyond_the_limits():
    env = make("Bandit", None, {"episodes_per_trial": 10**6})
    assert EnvPool(envs=[env]).get(row("Bandit", {"episodes_per_trial": 10**6})) is env


def test_no_more_processes_are_started_than_the_machine_bears(monkeypatch):
    monkeypatch.setattr(worker_processes, "_WORKERS", [])
    monkeypatch.setattr(worker_processes, "MOST_WORKERS", 3)
    chosen = [worker_processes.least_busy(1000) for _ in range(9)]
    assert len({id(worker) for worker in chosen}) == 3
    assert {worker.load for worker in chosen} == {3}
