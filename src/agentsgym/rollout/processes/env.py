"""An environment that is played by worker processes, behind the protocol of MultistepEnv.

The state of a session stays in its worker. Here it is represented by a `ProcessState`, which has
the session's name and the actions that led to the state. If a worker dies or hangs, a session is
replayed from these actions in a new worker, once; after that the session fails alone. So the
environment must be deterministic, as every environment must. A worker has no tokenizer, and an
environment's printed output there goes to standard error.
"""

import itertools
import json
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.processes import worker
from agentsgym.rollout.processes.worker import Worker, WorkerLost, least_busy
from agentsgym.rollout.trial import needs_end
from agentsgym.types import TrialInfo
from agentsgym.types.errors import ConfigError

_HERE_ONLY = frozenset({"tokenizer", "codec", "active_states", "active_sessions"})
_HOOKS = frozenset(
    {
        "_begin_episode",
        "_initialize_episode",
        "_format_prompt",
        "_step_episode",
        "_end_episode",
        "_calculate_reward",
        "_run_complete_episode",
    }
)
_TRIES = 2
_NUMBERS = itertools.count(1)


class WorkerError(RuntimeError):
    """An error in a worker; the message has the worker's traceback or how the worker ended."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A state in `worker`, of its session `number`. `played` are the actions of the session's
    episodes, the running one last. Earlier episodes matter, because an episode may depend on their
    ends (`trial`). `prompt` is the worker's reply with the next prompt, which comes with the answer
    to an action; None if it did not."""

    worker: Worker = field(compare=False, repr=False)
    number: int
    session_id: str
    task_data: Mapping[str, Any]
    trial: TrialInfo
    played: tuple[tuple[str, ...], ...] = ((),)
    prompt: tuple[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def actions(self) -> tuple[str, ...]:
        """The running episode's actions."""
        return self.played[-1]

    @property
    def position(self) -> tuple[int, int]:
        """Number of episodes started, and number of actions in the running one."""
        return len(self.played), len(self.actions)

    def after(self, action: str, prompt: Any) -> "ProcessState":
        """The state after an action."""
        played = (*self.played[:-1], (*self.actions, action))
        return replace(self, played=played, prompt=prompt)


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
        self._number, self._payload = _packed(env)

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
            state = replace(last, trial=info, played=(*last.played, ()))
        else:
            task = _plain(task_data)
            chosen = least_busy(self.config.workers)
            state = ProcessState(chosen, next(_NUMBERS), session_id, task, info)
        try:
            return replace(state, prompt=self._request(state, self._begin(state)))
        except BaseException:
            if not isinstance(last, ProcessState):
                state.worker.end_session(state.number)
            raise

    def _end_episode(self, session_id: str, state: ProcessState) -> None:
        """End the session in its worker, at once if the environment has something to close. With a
        worker that died its sessions ended."""
        state.worker.end_session(state.number)
        if needs_end(self._env) and state.worker.pid is not None:
            _value(*state.worker.request(("end", state.number), self.config.worker_timeout))

    def _format_prompt(self, state: ProcessState, step: int) -> Any:
        if state.prompt is None or step != len(state.actions):
            return self._ask(state, "_format_prompt", step)
        return _value(*state.prompt)

    def _step_episode(
        self, session_id: str, state: ProcessState, action: str
    ) -> tuple[ProcessState, float, bool, dict[str, Any]]:
        request = ("step", state.number, state.position, action)
        reward, done, info, prompt = self._request(state, request)
        return state.after(action, prompt), reward, done, info

    def _calculate_reward(
        self,
        state: ProcessState,
        actions: Sequence[str],
        final_action: str,
        step_rewards: Sequence[float],
    ) -> Any:
        return self._ask(
            state, "_calculate_reward", list(actions), final_action, list(step_rewards)
        )

    def _format_answer(self, state: ProcessState, step: int) -> Any:
        return self._ask(state, "_format_answer", step)

    def _format_result(self, state: ProcessState, reward: float) -> Any:
        return self._ask(state, "_format_result", reward)

    def _format_reflection(self, state: ProcessState, reward: float) -> Any:
        return self._ask(state, "_format_reflection", reward)

    def admissible_actions(self, state: ProcessState) -> Any:
        listed = hasattr(self._env, "admissible_actions")
        return self._ask(state, "admissible_actions") if listed else None

    def _format_memory(self, reflection: str) -> str:
        return self._env._format_memory(reflection)

    def _ask(self, state: ProcessState, method: str, *arguments: Any) -> Any:
        return self._request(state, ("ask", state.number, state.position, method, arguments))

    def _request(self, state: ProcessState, request: tuple[Any, ...]) -> Any:
        """The answer to a request. What the worker lacks for it, after it was lost or when it sees
        the environment for the first time, is sent before; it may be lost once."""
        needed, losses = [request], 0
        while True:
            loads = needed[-1][0] == "install"
            timeout = worker.START_SECONDS if loads else self.config.worker_timeout
            try:
                kind, value = state.worker.request(needed[-1], timeout)
            except WorkerLost as error:
                losses += 1
                if losses == _TRIES:
                    raise WorkerError(f"{error}, {_TRIES} times in a row") from None
                continue
            if kind == "lacks":
                needed.append(self._install() if value == "environment" else self._begin(state))
                continue
            answer = _value(kind, value)
            needed.pop()
            if not needed:
                return answer

    def _begin(self, state: ProcessState) -> tuple[Any, ...]:
        """The request that brings the session to this state in its worker."""
        session = (state.number, self._number, state.session_id, state.task_data)
        return ("begin", *session, state.trial, state.played)

    def _install(self) -> tuple[Any, ...]:
        # This process may have more import paths now than when the worker was started.
        return ("install", self._number, self._payload, [entry for entry in sys.path if entry])


def _value(kind: str, value: Any) -> Any:
    if kind == "ok":
        return value
    raise WorkerError(f"in a worker process:\n{value}")


def _plain(task_data: Mapping[str, Any]) -> dict[str, Any]:
    """The task in a form that may be sent: plain data only, so no object is created in a worker."""
    try:
        json.dumps(task_data := dict(task_data))
    except (TypeError, ValueError, RecursionError) as error:
        raise WorkerError(
            f"for a worker, task_data must be plain data (text, numbers, lists, dicts): {error}"
        ) from None
    return task_data


def hosted(env: MultistepEnv) -> MultistepEnv:
    """The environment itself, or if its configuration has workers a `ProcessEnv`. That packs the
    environment as it is now, so call this once for many sessions.

    An object whose methods were replaced (by a spy or a mock) is played in this process, where the
    replacements work.
    """
    replaced = not _HOOKS.isdisjoint(vars(env))
    if not env.config.workers or isinstance(env, ProcessEnv) or replaced:
        return env
    return ProcessEnv(env)


_PACKED: "weakref.WeakKeyDictionary[MultistepEnv, tuple[int, bytes]]" = weakref.WeakKeyDictionary()


def _packed(env: MultistepEnv) -> tuple[int, bytes]:
    """The environment in its current state, and the number by which workers know it. The number
    changes only if the bytes change."""
    payload = pack(env)
    known = _PACKED.get(env)
    if known is None or known[1] != payload:
        known = _PACKED[env] = next(_NUMBERS), payload
    return known


def pack(env: MultistepEnv, setting: str = "env_config.workers") -> bytes:
    """An environment's class and attributes, without tokenizer and sessions; `setting` asks for it.

    A class of the main script or of a function is sent by value, other classes by name. Raises
    ConfigError with the name of a part that cannot be sent.
    """
    import dill  # type: ignore[import-untyped] # its import needs a directory that can be written

    if type(env)._run_complete_episode is not MultistepEnv._run_complete_episode:
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
