"""Fifty clients at once, a tenth of them killed: the others notice nothing, no session is left."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("openenv")

from agentsgym import make
from agentsgym.rollout import SteppedTrial
from helpers import child_environment
from integrations.with_openenv.players import action
from integrations.with_openenv.served_env import Connection, until
from integrations.with_openenv.test_program import program

pytestmark = pytest.mark.doors
ROOT = Path(__file__).parents[3]
CLIENTS, KILLED, GAMES = 50, 5, 10
PROCESSES = 3
EACH = (CLIENTS - KILLED) // PROCESSES


def players(url, out, first, clients, *hold):
    command = [
        sys.executable,
        "-m",
        "integrations.with_openenv.players",
        url,
        first,
        clients,
        GAMES,
        *hold,
    ]
    return subprocess.Popen(
        [str(word) for word in command],
        stdout=out,
        text=True,
        env=child_environment(ROOT / "src", ROOT / "tests"),
    )


def lines_of(file):
    file.seek(0)
    return file.readlines()


def native(env, tasks, game):
    """The same game without a server."""
    trial = SteppedTrial(env, tasks[game])
    shown, rewards = [trial.messages[-1]["content"]], []
    while not trial.over:
        rewards.append(trial.act(action(game, len(rewards))))
        shown.append("" if trial.over else trial.messages[-1]["content"])
    return {"game": game, "shown": shown, "rewards": rewards}


@pytest.mark.timeout(600)
def test_500_games_by_50_clients_of_whom_a_tenth_is_killed(tmp_path):
    with program("Bandit", "error_allowance=99", "--sessions", str(CLIENTS)) as (_, url):
        doomed = players(url, subprocess.PIPE, CLIENTS - KILLED, KILLED, "hold")
        files = [(tmp_path / f"{k}.jsonl").open("w+") for k in range(PROCESSES)]
        others = [players(url, file, k * EACH, EACH) for k, file in enumerate(files)]
        try:
            assert [doomed.stdout.readline() for _ in range(KILLED)] == ["holding\n"] * KILLED
            doomed.kill()
            assert [process.wait(400) for process in others] == [0] * PROCESSES
        finally:
            for process in (doomed, *others):
                process.kill()
                process.wait()
        games = [json.loads(line) for file in files for line in lines_of(file)]
        assert_no_session_left(url)
    assert sorted(game["game"] for game in games) == list(range((CLIENTS - KILLED) * GAMES))
    env = make("Bandit", None, {"error_allowance": 99})
    tasks = env.get_train_dataset()["task_data"]
    assert all(game == native(env, tasks, game["game"]) for game in games)


def assert_no_session_left(url):
    """All places are free: that many clients can play at once, and no more."""

    def all_fit():
        lines = [Connection(url) for _ in range(CLIENTS)]
        kinds = [line.ask("reset", index=0)["type"] for line in lines]
        full = Connection(url).hear()["data"]["code"]
        for line in lines:
            line.__exit__()
        time.sleep(0.2)
        return kinds == ["observation"] * CLIENTS and full == "CAPACITY_REACHED"

    until(all_fit, 20)
