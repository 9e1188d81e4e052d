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
