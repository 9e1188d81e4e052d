"""An environment that is played by workers, behind the protocol of MultistepEnv.

The state of a session stays in its worker. Here it is represented by a `RemoteState`, which has the
session's name and the actions that led to the state. If a worker dies or hangs, a session is
replayed from these actions in a new worker, once; after that the session fails alone. So the
environment must be deterministic, as every environment must. A worker has no tokenizer, and an
environment's printed output there goes to standard error.
"""

import itertools
import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.settings import place_of
from agentsgym.rollout.lifetime import needs_end
from agentsgym.rollout.workers.pool import check_place, started_workers, worker_for
from agentsgym.rollout.workers.prompt import FailedPrompt
from agentsgym.rollout.workers.worker import Worker, WorkerLost
from agentsgym.types import TrialInfo
from agentsgym.types.errors import ConfigError

_HERE_ONLY = frozenset({"tokenizer", "codec", "active_states"})
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


class Lease:
    """A session's slot in a worker, released when nothing refers to it any more."""

    def __init__(self, worker: Worker, session_id: str, task_data: Mapping[str, Any]) -> None:
        self.number = next(_NUMBERS)
        self.worker = worker
        self.session_id = session_id
        self.task_data = _plain(task_data)
        weakref.finalize(self, worker.end_session, self.number).atexit = False


def _plain(task_data: Mapping[str, Any]) -> dict[str, Any]:
    """The task in a form that may be sent: plain data only, so no object is created in a worker."""
    try:
        json.dumps(task_data := dict(task_data))
    except (TypeError, ValueError, RecursionError) as error:
        raise WorkerError(
            f"for a worker, task_data must be plain data (text, numbers, lists, dicts): {error}"
        ) from None
    return task_data


@dataclass(frozen=True, slots=True)
class RemoteState:
    """A state in a worker. `played` are the actions of the session's episodes, the running one
    last. Earlier episodes matter, because an episode may depend on their ends (`trial`). `prompt`
    is the next prompt or the error there, which comes with the answer to an action; None if it did
    not."""

    lease: Lease
    trial: TrialInfo = field(default_factory=TrialInfo)
    played: tuple[tuple[str, ...], ...] = ((),)
    prompt: Any = field(default=None, compare=False, repr=False)

    @property
    def actions(self) -> tuple[str, ...]:
        """The running episode's actions."""
        return self.played[-1]

    @property
    def position(self) -> tuple[int, int]:
        """Number of episodes started, and number of actions in the running one."""
        return len(self.played), len(self.actions)

    def after(self, action: str, prompt: Any) -> "RemoteState":
        """The state after an action."""
        played = (*self.played[:-1], (*self.actions, action))
        return replace(self, played=played, prompt=prompt)


@dataclass(frozen=True, slots=True)
class Packed:
    """An environment as bytes, and the number under which workers store them."""

    number: int
    payload: bytes


class RemoteEnv(MultistepEnv):
    """Represents `env`; its episodes are played by `env.config.workers` workers, processes or
    Ray actors.

    Raises ConfigError if the environment cannot be sent to a worker or there is no Ray cluster.
    """

    blocking = True

    def __init__(self, env: MultistepEnv) -> None:
        self._env = env
        self.tokenizer = env.tokenizer
        self.codec = env.codec
        self.env_config = env.env_config
        self.config = env.config
        self.active_states = env.active_states
        check_place(env.config)
        self.most_sessions = env.most_sessions
        self._packed = packed(env)

    @property
    def unwrapped(self) -> MultistepEnv:
        return self._env

    @property
    def name(self) -> str:
        return self._env.name

    @property
    def class_path(self) -> str:
        return self._env.class_path

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> RemoteState:
        return self._begin_episode(session_id, task_data, self.trial_info())

    def _begin_episode(
        self, session_id: str, task_data: dict[str, Any], trial: TrialInfo
    ) -> RemoteState:
        last, info = trial.last_state, trial.without_state()
        if isinstance(last, RemoteState):
            state = RemoteState(last.lease, info, (*last.played, ()))
        else:
            lease = Lease(worker_for(self.config), session_id, task_data)
            state = RemoteState(lease, info)
        return replace(state, prompt=self._insist(state, None))

    def _end_episode(self, session_id: str, state: RemoteState) -> None:
        """End the session in its worker at once, if the environment has something to close. With a
        worker that died its sessions ended."""
        if needs_end(self._env) and state.lease.worker.has(self._packed.number):
            _value(*self._request(state, ("end", state.lease.number)))

    def _format_prompt(self, state: RemoteState, step: int) -> Any:
        if state.prompt is None or step != len(state.actions):
            return self._ask(state, "_format_prompt", step)
        if isinstance(state.prompt, FailedPrompt):
            return _value("error", state.prompt.traceback)
        return state.prompt

    def _step_episode(
        self, session_id: str, state: RemoteState, action: str
    ) -> tuple[RemoteState, float, bool, dict[str, Any]]:
        message = ("step", state.lease.number, state.position, action)
        reward, done, info, prompt = self._insist(state, message)
        return state.after(action, prompt), reward, done, info

    def _calculate_reward(
        self,
        state: RemoteState,
        actions: Sequence[str],
        final_action: str,
        step_rewards: Sequence[float],
    ) -> Any:
        return self._ask(
            state, "_calculate_reward", list(actions), final_action, list(step_rewards)
        )

    def _format_answer(self, state: RemoteState, step: int) -> Any:
        return self._ask(state, "_format_answer", step)

    def _format_result(self, state: RemoteState, reward: float) -> Any:
        return self._ask(state, "_format_result", reward)

    def _format_reflection(self, state: RemoteState, reward: float) -> Any:
        return self._ask(state, "_format_reflection", reward)

    def admissible_actions(self, state: RemoteState) -> Any:
        return self._ask(state, "admissible_actions")

    def _format_memory(self, reflection: str) -> str:
        return self._env._format_memory(reflection)

    def _ask(self, state: RemoteState, method: str, *arguments: Any) -> Any:
        message = ("ask", state.lease.number, state.position, method, arguments)
        return self._insist(state, message)

    def _insist(self, state: RemoteState, message: tuple[Any, ...] | None) -> Any:
        """Get an answer (None: begin the session), with a retry if the worker dies."""
        problem = ""
        for _ in range(_TRIES):
            try:
                if message is None:
                    return self._begin(state)
                kind, value = self._request(state, message)
                if kind == "lost":
                    self._begin(state)
                    kind, value = self._request(state, message)
            except WorkerLost as error:
                problem = str(error)
                continue
            return _value(kind, value)
        raise WorkerError(f"{problem}, {_TRIES} times in a row")

    def _begin(self, state: RemoteState) -> Any:
        """Bring the session to this state in its worker; returns its next prompt, if it has one."""
        lease = state.lease
        session = (lease.number, self._packed.number, lease.session_id, lease.task_data)
        return _value(*self._request(state, ("begin", *session, state.trial, state.played)))

    def _request(self, state: RemoteState, message: tuple[Any, ...]) -> tuple[str, Any]:
        return state.lease.worker.request(
            self._packed.number, self._packed.payload, message, self.config.worker_timeout
        )


def _value(kind: str, value: Any) -> Any:
    if kind == "ok":
        return value
    raise WorkerError(f"in a worker process:\n{value}")


def hosted(env: MultistepEnv) -> MultistepEnv:
    """The environment itself, or if its place is elsewhere a `RemoteEnv` that plays it there.

    An object whose methods were replaced (by a spy or a mock) is played in this process, where the
    replacements work.
    """
    replaced = not _HOOKS.isdisjoint(vars(env))
    if place_of(env.config) == "here" or isinstance(env, RemoteEnv) or replaced:
        return env
    return RemoteEnv(env)


_PACKED: "weakref.WeakKeyDictionary[MultistepEnv, Packed]" = weakref.WeakKeyDictionary()


def packed(env: MultistepEnv) -> Packed:
    """The environment in its current state. The number changes only if the bytes change."""
    payload = pack(env)
    known = _PACKED.get(env)
    if known is not None and known.payload == payload:
        return known
    if known is not None:
        _retire(known.number)
    fresh = Packed(next(_NUMBERS), payload)
    weakref.finalize(env, _retire, fresh.number).atexit = False
    _PACKED[env] = fresh
    return fresh


def _retire(number: int) -> None:
    for worker in started_workers():
        worker.retire(number)


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
