"""`agentsgym serve` as a program of its own."""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("openenv")

from helpers import child_environment

pytestmark = pytest.mark.doors
SOURCES = Path(__file__).parents[3] / "src"
SHORT = ("TwentyQuestions", "env_config.max_steps_per_episode=2")


@contextmanager
def program(*arguments):
    """`agentsgym serve` with these arguments; gives the process and its address."""
    command = [sys.executable, "-m", "agentsgym", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=child_environment(SOURCES)
    )
    try:
        line = process.stdout.readline()
        yield process, re.search(r"http://\S+", line)[0]
    finally:
        process.kill()
        process.wait()


def test_openenvs_own_client_plays_and_ctrl_c_ends_the_server():
    from openenv.core.generic_client import GenericEnvClient

    with program(*SHORT, "--sessions", "1") as (server, url):
        client = GenericEnvClient(base_url=url).sync()
        with client:
            first = client.reset(split="train", index=3)
            assert "Twenty Questions" in first.observation["text"] and not first.done
            assert client.step({"text": "Is it an animal?"}).reward == 0.0
            assert client.step({"text": "Is it a plant?"}).done
            assert client.state()["step_count"] == 2
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
        assert server.stdout.read().endswith("ended\n")


def test_a_model_is_evaluated_on_a_served_game():
    evaluate = [sys.executable, "-m", "agentsgym", "eval", "builtin:quickstart", "--env", "OpenEnv"]
    with program("TwentyQuestions", "env_config.split=hints", "env_config.hints=2") as (_, url):
        settings = [
            f"env_config.{key}" for key in (f"base_url={url}", "eval_split=eval", "eval_tasks=8")
        ]
        done = subprocess.run(
            [*evaluate, *settings, "--rollouts", "8", "--threads", "1"],
            capture_output=True,
            text=True,
            timeout=240,
            env=child_environment(SOURCES),
        )
    assert done.returncode == 0, done.stderr
    assert re.search(r"reward|win", done.stdout) and "failed" not in done.stderr
