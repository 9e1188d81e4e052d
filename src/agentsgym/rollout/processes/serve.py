"""What a worker process runs: it has environments and the states of their sessions, and answers
requests.

Started as `python -m agentsgym.rollout.processes.serve FD`, where FD is its end of a socket pair.
It never imports the main script of the process that started it, and ends with that process.

A message is (sessions that ended, request); a request is the name of a method of `Server` and its
arguments. A reply is (kind, value); the kind is "ok" or "error" (the traceback).
"""

import contextlib
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.trial import begin_state, end_state
from agentsgym.types import Answer, TrialInfo


@dataclass(slots=True)
class ServedSession:
    """A session in its episode number `episodes` (from 1). Its state is in `env.active_states`."""

    env: MultistepEnv
    session_id: str
    task_data: dict[str, Any]
    episodes: int = 0

    @property
    def state(self) -> Any:
        return self.env.active_states.get(self.session_id)

    def begin(self, trial: TrialInfo) -> None:
        """Begin the next episode; `trial` may belong to a later one."""
        info = replace(trial.at(self.episodes), last_state=self.state)
        begin_state(self.env, self.session_id, deepcopy(self.task_data), info)
        self.episodes += 1

    def ready(self) -> None:
        """Return, which says that the session has begun."""

    def step(self, action: str | Answer) -> tuple[Any, ...]:
        """Take an action; returns (reward, done, info)."""
        state, *answer = self.env._step_episode(self.session_id, self.state, action)
        self.env.active_states[self.session_id] = state
        return tuple(answer)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the environment with the state and `arguments`."""
        return getattr(self.env, method)(self.state, *arguments)


class Server:
    """Answers requests, one at a time. Environments have keys, sessions have numbers."""

    def __init__(self) -> None:
        self._envs: dict[str, MultistepEnv] = {}
        self._sessions: dict[int, ServedSession] = {}

    def answer(self, ended: Sequence[int], request: tuple[Any, ...]) -> tuple[str, Any]:
        """The reply to a request; any exception of the environment becomes an "error"."""
        name, *arguments = request
        try:
            for number in ended:
                if number in self._sessions:
                    session = self._sessions.pop(number)
                    end_state(session.env, session.session_id)
            return "ok", getattr(self, f"on_{name}")(*arguments)
        except BaseException:
            return "error", traceback.format_exc()

    def on_install(self, key: str, payload: bytes, path: list[str]) -> None:
        """Load an environment, whose modules may be anywhere on its own process's `path`."""
        sys.path += [entry for entry in path if entry not in sys.path]
        self._envs[key] = unpack(payload)

    def on_end(self) -> None:
        """End the sessions that came with this request."""

    def on_begin(
        self,
        number: int,
        env: str,
        session_id: str,
        task_data: Any,
        trial: TrialInfo,
        played: Sequence[Sequence[str | Answer]],
    ) -> None:
        """Play a session up to the state after `played`, its actions episode by episode; `trial` is
        the running episode's."""
        session = ServedSession(self._envs[env], session_id, task_data)
        self._sessions[number] = session
        for actions in played:
            session.begin(trial)
            for action in actions:
                session.step(action)

    def on_session(self, number: int, method: str, *arguments: Any) -> Any:
        return getattr(self._sessions[number], method)(*arguments)


def unpack(payload: bytes) -> MultistepEnv:
    """The environment that `agentsgym.rollout.processes.env.pack` packed; it has no tokenizer."""
    kind, attributes = dill.loads(payload)  # noqa: S301 - packed by the process that started us
    env: MultistepEnv = kind.__new__(kind)
    env.__dict__.update(attributes)
    env.config = kind.Settings.model_construct(**attributes["config"])
    env.tokenizer = env.codec = None
    env.active_states, env.active_sessions = {}, {}
    return env


def serve(connection: "Connection[Any, Any]") -> None:
    """Answer requests until the other end closes."""
    server = Server()
    with contextlib.suppress(EOFError, OSError):
        while True:
            # The other end is the process that started this one.
            reply = server.answer(*pickle.loads(connection.recv_bytes()))  # noqa: S301
            try:
                data = pickle.dumps(reply)
            except BaseException:  # the environment's answer cannot be sent
                data = pickle.dumps(("error", traceback.format_exc()))
            connection.send_bytes(data)


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
