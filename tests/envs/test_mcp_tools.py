"""The tools of MCP servers: started, used, closed, and what a server does wrong."""

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from agentsgym import McpTools, ScriptedAgent, ToolEnv
from agentsgym.envs import ConfigError
from agentsgym.types import Answer
from agentsgym.types.tool_actions import calling, said

pytest.importorskip("mcp")

SERVER = str(Path(__file__).with_name("mcp_server.py"))
STDIO = [sys.executable, SERVER, "stdio"]


class DemoEnv(ToolEnv):
    def __init__(self, server, **config):
        self.tools = [server]
        super().__init__(None, config)

    def _initialize_episode(self, session_id, task_data):
        return {"prompt": "Go."}

    def grade(self, state, answer):
        return 0.0

    def act(self, name, **arguments):
        """(the content of the message that answers a call, reward, done)."""
        action = Answer(said(calling(name, **arguments)))
        state, reward, done, _ = self._step_episode("s", {"prompt": "Go."}, action)
        return state["results"][0]["content"], reward, done

    def ask(self, name, **arguments):
        """The content of the message that answers a call."""
        return self.act(name, **arguments)[0]


@contextmanager
def demo(server, **config):
    """An environment with the tools of a server, which is closed afterwards."""
    try:
        yield DemoEnv(server, **config)
    finally:
        server.close()


@pytest.fixture
def http_server():
    """The address of a running server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, SERVER, "streamable-http", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


def test_a_program_is_started_used_and_closed():
    with demo(McpTools(command=STDIO)) as env:
        function = env.tool_schemas[0]["function"]
        assert (function["name"], function["description"]) == ("add", "Add two numbers")
        assert set(function["parameters"]["properties"]) == {"a", "b"}
        assert env.ask("add", a=1, b=2) == "3"
        assert env.ask("fail") == "Error: Error executing tool fail: broken"
        server = psutil.Process(int(env.ask("identity")))
    assert not server.is_running()


def test_a_server_pays_and_ends_only_if_the_author_lets_it():
    with demo(McpTools(command=STDIO)) as env:
        assert env.act("pay", reward=0.5, done=True) == ("paid", 0.0, False)
    with demo(McpTools(command=STDIO, outcomes=True)) as env:
        assert env.act("pay", reward=0.5, done=True) == ("paid", 0.5, True)
        assert env.act("pay", reward=-1.0, done=False) == ("paid", -1.0, False)
        assert env.act("add", a=1, b=2) == ("3", 0.0, False)
        assert env.act("pay", reward=0.5, done=True, fails=True) == ("Error: paid", 0.0, False)
        with pytest.raises(ValueError, match="the reward of the tool pay must be a finite number"):
            env.act("pay", reward="much", done=False)


def test_a_server_over_http_is_used(http_server):
    deadline = time.monotonic() + 30
    while True:
        try:
            with demo(McpTools(url=http_server)) as env:
                assert env.ask("add", a=1, b=2) == "3"
            return
        except ConfigError:  # it is still starting
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.slow
def test_worker_processes_open_their_own():
    with demo(McpTools(command=STDIO), workers=1) as env:
        action = calling("identity")
        (rollout,) = env.run_trial([{}], ScriptedAgent([action, "done"])).rollouts
        assert rollout.error is None
        (result,) = (m for m in rollout.episodes[0].messages if m["role"] == "tool")
        assert result["content"] != env.ask("identity")
        server = psutil.Process(int(result["content"]))
        assert server.ppid() != psutil.Process().pid


def test_a_server_that_dies_or_hangs_is_an_error_and_is_replaced():
    with demo(McpTools(command=STDIO), tool_seconds=1.0) as env:
        assert env.ask("die") == "Error: the server of the tool failed: Connection closed"
        assert env.ask("add", a=1, b=2) == "3"
        assert env.ask("hang") == "Error: no result within 1 seconds"
        assert env.ask("add", a=1, b=2) == "3"


def test_a_server_ends_with_the_process_that_uses_it():
    script = (
        "from agentsgym import McpTools\n"
        "import psutil\n"
        f"server = McpTools(command={STDIO!r})\n"
        "print(server.session() and 'open')\n"
        "print(psutil.Process().children()[0].pid)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    opened, number = done.stdout.split()
    assert opened == "open"
    assert not psutil.pid_exists(int(number))


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"command": ["no-such-program"]}, "no-such-program: .*No such file"),
        ({"command": [sys.executable, "-c", "1/0"]}, "ZeroDivisionError"),
        ({"url": "http://127.0.0.1:9/mcp"}, "connection attempts failed"),
        ({}, "either a command"),
        ({"command": "python server.py"}, "either a command"),
    ],
)
def test_a_server_that_does_not_start_is_a_sentence(server, said):
    with pytest.raises(ConfigError, match=said):
        DemoEnv(McpTools(**server))
