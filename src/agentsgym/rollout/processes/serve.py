"""What a worker process runs: it has environments and the states of their sessions, and answers
requests.

Started as `python -m agentsgym.rollout.processes.serve FD`, where FD is its end of a socket pair.
It never imports the main script of the process that started it, and ends with that process.

A message is (sessions that ended, request); a request is a tuple that begins with its name. A reply
is (kind, value); the kind is "ok", "error" (the traceback) or "lacks" (the worker does not have the
"environment", or the "session" in that state).
"""

import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.session import FAULTS, copy_task
from agentsgym.rollout.trial import begin_state, close_state
from agentsgym.types import TrialInfo

Reply = tuple[str, Any]

Played = tuple[tuple[str, ...], ...]
"""The actions of a session, episode by episode; the last is the running one."""

_MOST_IDLE = 4
"""Environments without a session that are kept."""


@dataclass(slots=True)
class ServedSession:
    """A session's state in its episode number `episodes` (from 1), after `steps` actions. `live`:
    the state has not been closed."""

    env: MultistepEnv
    session_id: str
    task_data: dict[str, Any]
    state: Any = None
    live: bool = False
    episodes: int = 0
    steps: int = 0

    def begin(self, trial: TrialInfo) -> None:
        """Begin the next episode; `trial` may belong to a later one."""
        info = replace(trial.at(self.episodes), last_state=self.state)
        states = self.env.active_states
        if self.live:
            states[self.session_id] = self.state
        else:  # a session of the same name may not have ended yet
            states.pop(self.session_id, None)
        try:
            self.state = begin_state(self.env, self.session_id, copy_task(self.task_data), info)
        finally:
            self.live = self.session_id in states
        self.episodes += 1
        self.steps = 0

    def step(self, action: str) -> tuple[float, bool, dict[str, Any]]:
        """Take an action; returns (reward, done, info)."""
        state, reward, done, info = self.env._step_episode(self.session_id, self.state, action)
        self.state = self.env.active_states[self.session_id] = state
        self.steps += 1
        return reward, done, info

    def prompt(self) -> Reply | None:
        """The next prompt, or the error that the environment raised there, which counts only if
        somebody needs the prompt. None if it is no text: whoever needs it then asks for it."""
        try:
            prompt = self.env._format_prompt(self.state, self.steps)
        except FAULTS:
            return "error", traceback.format_exc()
        return ("ok", prompt) if type(prompt) is str else None

    def stands_after(self, played: Sequence[tuple[str, ...]]) -> bool:
        """Whether these actions led to the current state (their numbers decide)."""
        return self.episodes == len(played) and self.steps == len(played[-1])

    def end(self) -> None:
        """Let the environment close the state."""
        states = self.env.active_states
        if self.session_id in states and states[self.session_id] is self.state:
            del states[self.session_id]
        if self.live:
            close_state(self.env, self.session_id, self.state)


class Server:
    """Answers requests, one at a time. Sessions and environments have numbers."""

    def __init__(self) -> None:
        self._envs: dict[int, MultistepEnv] = {}
        self._sessions: dict[int, ServedSession] = {}

    def answer(self, ended: Sequence[int], request: tuple[Any, ...]) -> Reply:
        """The reply to a request; any exception of the environment becomes an "error"."""
        name, *arguments = request
        try:
            for number in ended:
                self.on_end(number)
            reply: Reply = getattr(self, f"on_{name}")(*arguments)
        except BaseException:
            return "error", traceback.format_exc()
        return reply

    def on_install(self, number: int, payload: bytes, path: list[str]) -> Reply:
        """Load an environment, whose modules may be anywhere on its own process's `path`."""
        sys.path += [entry for entry in path if entry not in sys.path]
        used = {id(session.env) for session in self._sessions.values()}
        idle = [number for number, env in self._envs.items() if id(env) not in used]
        for old in idle[: len(idle) - _MOST_IDLE + 1]:
            del self._envs[old]
        self._envs[number] = unpack(payload)
        return "ok", None

    def on_end(self, number: int) -> Reply:
        """End a session, if it is still here."""
        session = self._sessions.pop(number, None)
        if session is not None:
            session.end()
        return "ok", None

    def on_begin(
        self,
        number: int,
        env: int,
        session_id: str,
        task_data: Any,
        trial: TrialInfo,
        played: Played,
    ) -> Reply:
        """Bring a session to its state after `played`: continue if its next episode begins,
        otherwise replay from the start. `trial` is the running episode's trial information. Returns
        the next prompt."""
        if env not in self._envs:
            return "lacks", "environment"
        *before, now = played
        session = self._sessions.get(number)
        if session is None or now or not before or not session.stands_after(before):
            self.on_end(number)
            session = ServedSession(self._envs[env], session_id, task_data)
            self._sessions[number] = session
            for actions in before:
                _play(session, trial, actions)
        _play(session, trial, now)
        return "ok", session.prompt()

    def on_step(self, number: int, position: tuple[int, int], action: str) -> Reply:
        """Take an action in a session at (episode, step); returns (reward, done, info) and the next
        prompt, so that a step is one request."""
        return self._at(number, position, lambda session: _step(session, action))

    def on_ask(
        self, number: int, position: tuple[int, int], method: str, arguments: tuple[Any, ...]
    ) -> Reply:
        """Call a method of the environment with the session's state and `arguments`."""
        return self._at(
            number,
            position,
            lambda session: getattr(session.env, method)(session.state, *arguments),
        )

    def _at(
        self, number: int, position: tuple[int, int], act: Callable[[ServedSession], Any]
    ) -> Reply:
        session = self._sessions.get(number)
        if session is None or (session.episodes, session.steps) != position:
            return "lacks", "session"
        return "ok", act(session)


def _step(session: ServedSession, action: str) -> tuple[Any, ...]:
    reward, done, info = session.step(action)
    return reward, done, info, None if done else session.prompt()


def _play(session: ServedSession, trial: TrialInfo, actions: tuple[str, ...]) -> None:
    session.begin(trial)
    for action in actions:
        session.step(action)


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
    """Say that the process is ready, and answer requests until the other end closes."""
    server = Server()
    connection.send_bytes(b"ready")
    while True:
        try:
            # The other end is the process that started this one.
            ended, request = pickle.loads(connection.recv_bytes())  # noqa: S301
        except (EOFError, OSError):
            return
        connection.send_bytes(_packed(server.answer(ended, request)))


def _packed(reply: Reply) -> bytes:
    """A reply as bytes; one that cannot be sent becomes an "error"."""
    try:
        return pickle.dumps(reply)
    except Exception:
        return pickle.dumps(("error", traceback.format_exc()))


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
