"""A worker process: it holds environments and the states of their sessions, and answers calls.

Started as `python -m agentsgym.rollout.worker_main FD`, where FD is its end of a socket pair; it
never imports the main script of the process that started it. Every request is a tuple whose first
item names it, every reply is (kind, value) with a kind of "ok", "error" (the traceback) or "lost"
(the worker does not have the session at that point of its game).
"""

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.envs.base import MultistepEnv

Reply = tuple[str, Any]
ORPHAN_CHECK_SECONDS = 5.0


@dataclass(slots=True)
class Held:
    """A session's state after `steps` actions."""

    env: MultistepEnv
    session_id: str
    state: Any
    steps: int = 0


class Server:
    """Answers requests, one at a time."""

    def __init__(self) -> None:
        self._envs: dict[int, MultistepEnv] = {}
        self._held: dict[int, Held] = {}

    def answer(self, request: tuple[Any, ...]) -> Reply:
        """The reply to a request; an exception of the environment becomes an "error"."""
        name, *arguments = request
        try:
            reply: Reply = getattr(self, f"on_{name}")(*arguments)
        except (Exception, SystemExit):
            return "error", traceback.format_exc()
        return reply

    def on_install(self, env_id: int, payload: bytes) -> Reply:
        """Take in an environment."""
        self._envs[env_id] = unpack(payload)
        return "ok", None

    def on_discard(self, env_ids: list[int], leases: list[int]) -> Reply:
        """Forget environments and sessions."""
        for env_id in env_ids:
            self._envs.pop(env_id, None)
        for lease in leases:
            held = self._held.pop(lease, None)
            if held is not None and held.env.active_states.get(held.session_id) is held.state:
                del held.env.active_states[held.session_id]
        return "ok", None

    def on_begin(
        self, lease: int, env_id: int, session_id: str, task_data: Any, actions: tuple[str, ...]
    ) -> Reply:
        """Begin an episode and give it the actions that it had before, if any."""
        env = self._envs[env_id]
        held = Held(env, session_id, env._initialize_episode(session_id, dict(task_data)))
        env.active_states[session_id] = held.state
        self._held[lease] = held
        for action in actions:
            _step(held, action)
        return "ok", None

    def on_step(self, lease: int, steps: int, action: str) -> Reply:
        """Give a session its action number `steps`; (reward, done, info)."""
        held = self._held.get(lease)
        if held is None or held.steps != steps:
            return "lost", None
        return "ok", _step(held, action)

    def on_ask(self, lease: int, steps: int, method: str, arguments: tuple[Any, ...]) -> Reply:
        """Call a method of the environment with the session's state and `arguments`."""
        held = self._held.get(lease)
        if held is None or held.steps != steps:
            return "lost", None
        return "ok", getattr(held.env, method)(held.state, *arguments)


def _step(held: Held, action: str) -> tuple[float, bool, dict[str, Any]]:
    state, reward, done, info = held.env._step_episode(held.session_id, held.state, action)
    held.state = held.env.active_states[held.session_id] = state
    held.steps += 1
    return reward, done, info


def unpack(payload: bytes) -> MultistepEnv:
    """The environment that `agentsgym.rollout.remote.pack` packed; it has no tokenizer."""
    kind, attributes = dill.loads(payload)
    env: MultistepEnv = kind.__new__(kind)
    env.__dict__.update(attributes)
    env.config = MappingProxyType(attributes["config"])
    env.tokenizer = env.codec = None
    env.active_states, env._open_sessions = {}, {}
    return env


def serve(connection: Connection) -> None:
    """Answer requests until the other end closes."""
    server = Server()
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        reply = server.answer(request)
        try:
            message = pickle.dumps(reply)
        except Exception:
            message = pickle.dumps(("error", traceback.format_exc()))
        connection.send_bytes(message)


def _leave_with(parent: int) -> None:
    """End this process when its parent is gone, whatever the environment is busy with."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_SECONDS)
    os._exit(1)


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    with Connection(int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
