"""A worker process: it has environments and the states of their sessions, and answers calls.

Started as `python -m agentsgym.rollout.workers.main FD`, where FD is its end of a socket pair. It
never imports the main script of the process that started it, and ends with that process. Every
request is a tuple that begins with the request's name. Every reply is (kind, value); the kind is
"ok", "error" (the traceback) or "lost" (the worker does not have the session in that state).
"""

import pickle
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, replace
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.lifetime import begin_state, close_state
from agentsgym.rollout.session import FAULTS, copy_task
from agentsgym.rollout.workers.channel import MOST_BYTES, Channel
from agentsgym.rollout.workers.prompt import FailedPrompt
from agentsgym.types import TrialInfo

Reply = tuple[str, Any]


Played = tuple[tuple[str, ...], ...]
"""The actions of a session, episode by episode; the last is the running one."""


@dataclass(slots=True)
class Held:
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

    def prompt(self) -> Any:
        """The next prompt, or the error that the environment raised there. None if it is no text:
        whoever needs it then asks for it."""
        try:
            found = self.env._format_prompt(self.state, self.steps)
        except FAULTS:
            return FailedPrompt(traceback.format_exc())
        return found if type(found) is str else None

    def end(self) -> None:
        """Let the environment close the state."""
        if self.env.active_states.get(self.session_id) is self.state:
            del self.env.active_states[self.session_id]
        if self.live:
            close_state(self.env, self.session_id, self.state)

    def stands_after(self, played: Played) -> bool:
        """Whether these actions led to the current state (their numbers decide)."""
        return self.episodes == len(played) and self.steps == len(played[-1])


class Server:
    """Answers requests, one at a time."""

    def __init__(self) -> None:
        self._envs: dict[int, MultistepEnv] = {}
        self._held: dict[int, Held] = {}

    def answer(self, request: tuple[Any, ...]) -> Reply:
        """The reply to a request; any exception of the environment becomes an "error"."""
        name, *arguments = request
        try:
            reply: Reply = getattr(self, f"on_{name}")(*arguments)
        except BaseException:
            return "error", traceback.format_exc()
        return reply

    def on_install(self, env_id: int, payload: bytes, path: list[str]) -> Reply:
        """Load an environment, whose modules may be anywhere on its own process's `path`."""
        sys.path += [entry for entry in path if entry not in sys.path]
        self._envs[env_id] = unpack(payload)
        return "ok", None

    def on_discard(self, env_ids: list[int], leases: list[int]) -> Reply:
        """Drop environments and sessions."""
        for env_id in env_ids:
            self._envs.pop(env_id, None)
        for lease in leases:
            self.on_end(lease)
        return "ok", None

    def on_end(self, lease: int) -> Reply:
        """End a session, if it is still here."""
        held = self._held.pop(lease, None)
        if held is not None:
            held.end()
        return "ok", None

    def on_begin(
        self,
        lease: int,
        env_id: int,
        session_id: str,
        task_data: Any,
        trial: TrialInfo,
        played: Played,
    ) -> Reply:
        """Bring a session to its state after `played`: continue if its next episode begins,
        otherwise replay from the start. `trial` is the running episode's trial information. Returns
        the next prompt."""
        *before, now = played
        held = self._held.get(lease)
        if held is None or now or not before or not held.stands_after(tuple(before)):
            self.on_end(lease)
            held = self._held[lease] = Held(self._envs[env_id], session_id, task_data)
            for actions in before:
                _play(held, trial, actions)
        _play(held, trial, now)
        return "ok", held.prompt()

    def on_step(self, lease: int, position: tuple[int, int], action: str) -> Reply:
        """Take an action in a session at (episode, step); returns (reward, done, info) and the next
        prompt, so that a step is one request."""
        held = self._held.get(lease)
        if held is None or (held.episodes, held.steps) != position:
            return "lost", None
        reward, done, info = held.step(action)
        return "ok", (reward, done, info, None if done else held.prompt())

    def on_ask(
        self, lease: int, position: tuple[int, int], method: str, arguments: tuple[Any, ...]
    ) -> Reply:
        """Call a method of the environment with the session's state and `arguments`."""
        held = self._held.get(lease)
        if held is None or (held.episodes, held.steps) != position:
            return "lost", None
        return "ok", getattr(held.env, method)(held.state, *arguments)


def _play(held: Held, trial: TrialInfo, actions: tuple[str, ...]) -> None:
    held.begin(trial)
    for action in actions:
        held.step(action)


def unpack(payload: bytes) -> MultistepEnv:
    """The environment that `agentsgym.rollout.workers.env.pack` packed; it has no tokenizer."""
    kind, attributes = dill.loads(payload)  # noqa: S301 - packed by the process that started us
    env: MultistepEnv = kind.__new__(kind)
    env.__dict__.update(attributes)
    env.config = kind.Settings.model_construct(**attributes["config"])
    env.tokenizer = env.codec = None
    env.active_states = {}
    return env


def serve(channel: Channel) -> None:
    """Answer requests until the other end closes."""
    server = Server()
    while True:
        try:
            number, request = channel.receive()
        except (EOFError, OSError):
            return
        # The other end is the process that started this one.
        asked = pickle.loads(request)  # noqa: S301
        channel.send(number, packed_reply(server.answer(asked)))


def packed_reply(reply: Reply) -> bytes:
    """A reply as bytes; one that cannot be sent becomes an "error"."""
    try:
        packed = pickle.dumps(reply)
    except Exception:
        return pickle.dumps(("error", traceback.format_exc()))
    if len(packed) > MOST_BYTES:
        said = f"an answer of {len(packed)} bytes is too long, {MOST_BYTES} are allowed"
        return pickle.dumps(("error", said))
    return packed


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Channel(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
