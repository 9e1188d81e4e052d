"""An environment that is played by worker processes, behind the protocol of MultistepEnv.

The state of a session stays in its worker. Here it is represented by a `ProcessState`, which has
the session's name and the actions that led to the state. If a worker dies or hangs, a session is
replayed from these actions in a new worker, once; after that the session fails alone. So the
environment must be deterministic, as every environment must. A worker has no tokenizer, and an
environment's printed output there goes to standard error.
"""

import hashlib
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentsgym.envs.base import MultistepEnv, overrides
from agentsgym.rollout.processes import worker
from agentsgym.rollout.processes.worker import Worker, WorkerError, WorkerLost, least_busy
from agentsgym.types import Answer, TrialInfo
from agentsgym.types.names import ConfigError

_HERE_ONLY = frozenset({"tokenizer", "codec", "active_states", "active_sessions"})
_TRIES = 2
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A state in `worker`, of its session `number`. `played` are the actions of the session's
    episodes, the running one last: an episode may depend on the ends of earlier ones (`trial`)."""

    worker: Worker = field(compare=False, repr=False)
    number: int
    session_id: str
    task_data: Mapping[str, Any]
    trial: TrialInfo
    played: tuple[tuple[str | Answer, ...], ...] = ((),)


class ProcessEnv(MultistepEnv):
    """Represents `env`; its episodes are played by `env.config.workers` processes.

    Raises ConfigError if the environment cannot be sent to a process.
    """

    blocking = True

    def __init__(self, env: MultistepEnv) -> None:
        self._env = env
        self.tokenizer = env.tokenizer
        self.codec = env.codec
        self.env_config = env.env_config
        self.config = env.config
        self.active_states = env.active_states
        self.active_sessions = env.active_sessions
        self.most_sessions = env.most_sessions
        self._payload = pack(env)
        self._key = hashlib.blake2b(self._payload, digest_size=16).hexdigest()

    @property
    def unwrapped(self) -> MultistepEnv:
        return self._env

    @property
    def name(self) -> str:
        return self._env.name

    @property
    def class_path(self) -> str:
        return self._env.class_path

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> ProcessState:
        return self._begin_episode(session_id, task_data, self.trial_info())

    def _begin_episode(
        self, session_id: str, task_data: dict[str, Any], trial: TrialInfo
    ) -> ProcessState:
        last, info = trial.last_state, trial.without_state()
        if isinstance(last, ProcessState):
            self._request(last, "begin", info)
            return replace(last, trial=info, played=(*last.played, ()))
        chosen = least_busy(self.config.workers)
        state = ProcessState(chosen, next(_NUMBERS), session_id, task_data, info)
        try:
            self._request(state, "ready")
        except BaseException:
            state.worker.end_session(state.number)
            raise
        return state

    def _end_episode(self, session_id: str, state: ProcessState) -> None:
        """End the session with the worker's next request, or at once if the environment has
        something to close. With a worker that died its sessions ended."""
        state.worker.end_session(state.number)
        if overrides(self._env, "_end_episode") and state.worker.pid is not None:
            state.worker.request(self.config.worker_timeout, "end")

    def _step_episode(
        self, session_id: str, state: ProcessState, action: str | Answer
    ) -> tuple[ProcessState, float, bool, dict[str, Any]]:
        reward, done, info = self._request(state, "step", action)
        played = (*state.played[:-1], (*state.played[-1], action))
        return replace(state, played=played), reward, done, info

    def _format_memory(self, reflection: str) -> str:
        return self._env._format_memory(reflection)

    def _ask(self, state: ProcessState, method: str, *arguments: Any) -> Any:
        return self._request(state, "ask", method, *arguments)

    def _request(self, state: ProcessState, name: str, *arguments: Any) -> Any:
        """What a method of the session in the worker returns (`ServedSession`). A worker that lacks
        the environment or the session, because it is new, gets them before; it may be lost once."""
        at, timeout = state.worker, self.config.worker_timeout
        with at.lock:
            for left in reversed(range(_TRIES)):
                try:
                    if self._key not in at.environments:
                        # This process may have more import paths now than when it was started.
                        path = [entry for entry in sys.path if entry]
                        loading = (self._key, self._payload, path)
                        at.request(worker.START_SECONDS, "install", *loading)
                        at.environments.add(self._key)
                    if state.number not in at.sessions:
                        session = (state.number, self._key, state.session_id, state.task_data)
                        at.request(timeout, "begin", *session, state.trial, state.played)
                        at.sessions.add(state.number)
                    return at.request(timeout, "session", state.number, name, *arguments)
                except WorkerLost as error:
                    if not left:
                        raise WorkerError(f"{error}, {_TRIES} times in a row") from None
        raise AssertionError


def _asking(method: str) -> Any:
    def ask(env: ProcessEnv, state: ProcessState, *arguments: Any) -> Any:
        return env._ask(state, method, *arguments)

    return ask


for _hook in (
    *("_format_prompt", "_calculate_reward", "_format_answer", "_format_result"),
    *("_format_reflection", "_format_note_request", "admissible_actions"),
):
    setattr(ProcessEnv, _hook, _asking(_hook))


def hosted(env: MultistepEnv) -> MultistepEnv:
    """The environment itself, or if its configuration has workers a `ProcessEnv`. That packs the
    environment as it is now, so call this once for many sessions."""
    return ProcessEnv(env) if env.config.workers and not isinstance(env, ProcessEnv) else env


def pack(env: MultistepEnv, setting: str = "env_config.workers") -> bytes:
    """An environment's class and attributes, without tokenizer and sessions; `setting` asks for it.

    A class of the main script or of a function is sent by value, other classes by name. Raises
    ConfigError with the name of a part that cannot be sent.
    """
    import dill  # type: ignore[import-untyped] # its import needs a directory that can be written

    if overrides(env, "_run_complete_episode"):
        raise ConfigError(
            f"{env.name}: {setting} must be 0, for it defines its own _run_complete_episode"
        )
    attributes = {name: value for name, value in vars(env).items() if name not in _HERE_ONLY}
    attributes["config"] = env.config.model_dump()
    try:
        payload: bytes = dill.dumps((type(env), attributes), recurse=True)
    except Exception as error:
        raise ConfigError(
            f"{env.name}: {setting} must be 0, for it cannot be sent to a process: {error!r}"
        ) from error
    return payload
