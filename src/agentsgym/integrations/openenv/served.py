"""An environment as OpenEnv serves it: its tasks, its open trials and its messages.

A client is told what `TrialFacts` holds and what the environment says to the agent, and nothing
else: no `task_data`, no `info`, no error message."""

import contextlib
import logging
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.dataset import tasks_of
from agentsgym.rollout.processes.env import hosted
from agentsgym.rollout.stepping import SteppedTrial
from agentsgym.types import Rollout
from agentsgym.types.text import finite

logger = logging.getLogger(__name__)

SPLITS = ("train", "eval")


class BadTask(ValueError):
    """A client asked for a task that there is not; the message is for the client."""


class TrialHost:
    """The trials that a server plays in one environment.

    Clients name tasks by split and number, so that they can neither read a task nor bring one of
    their own. Trials run in the threads of their clients: one at a time may step an environment
    that is not `blocking`.
    """

    def __init__(self, env: MultistepEnv) -> None:
        self.env = env
        self._host = hosted(env)
        self.stepping: AbstractContextManager[Any] = (
            contextlib.nullcontext() if self._host.blocking else threading.Lock()
        )
        self._loading = threading.Lock()
        self._tasks: dict[str, list[Mapping[str, Any]]] = {}
        self._chance = random.Random()

    def begin(self, split: str | None, index: int | None, seed: int | None) -> SteppedTrial:
        """A trial on task number `index` of a split ("train" by default).

        Without an index it is task number `seed` modulo the number of tasks, and without a seed any
        task. Raises BadTask.
        """
        tasks = self._split(split or "train")
        if index is None:
            chosen = self._chance.randrange(2**31) if seed is None else seed
            index = chosen % len(tasks)
        if not 0 <= index < len(tasks):
            raise BadTask(f"there is no task {index}: the split has {len(tasks)}")
        with self.stepping:
            return SteppedTrial(self._host, tasks[index])

    def _split(self, name: str) -> list[Mapping[str, Any]]:
        if name not in SPLITS:
            raise BadTask(f"there is no such split; splits are {', '.join(SPLITS)}")
        with self._loading, self.stepping:
            if name not in self._tasks:
                self._tasks[name] = list(tasks_of(self.env, name)["task_data"])
            return self._tasks[name]


class TextAction(Action):  # type: ignore[misc]
    """What the agent says."""

    text: str = Field(description="the agent's whole answer")


class TextObservation(Observation):  # type: ignore[misc]
    """What the agent reads next, and where the trial stands."""

    text: str = Field(default="", description="the text to answer; empty at the end")
    messages: list[dict[str, str]] = Field(
        default_factory=list,
        description="the messages since the last action; a whole new conversation where "
        "new_conversation is true",
    )
    new_conversation: bool = Field(default=False, description="begin a new conversation here")
    asks_for: str | None = Field(default=None, description="action, reflection, or null at the end")
    episode: int = Field(default=0, description="number of the trial's episode, from 0")
    episodes: int = Field(default=1, description="episodes of the trial")
    scored: bool = Field(default=True, description="whether the episode's reward counts")
    malformed: bool = Field(default=False, description="whether the last action was malformed")
    episode_done: bool = Field(default=False, description="whether it ended its episode")
    stop_reason: str | None = Field(default=None, description="why that episode ended")
    win: bool | None = Field(default=None, description="whether that episode was won")
    failed: bool = Field(default=False, description="whether an error ended the trial")


class ServedEnvironment(Environment):  # type: ignore[misc]
    """One client's session. It may play any number of trials, one after another."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, host: TrialHost) -> None:
        super().__init__()
        self._host = host
        self._trial: SteppedTrial | None = None
        self._state = State()
        self._closed = False
        # OpenEnv ends an idle session in one thread and runs its late step in another.
        self._one_at_a_time = threading.Lock()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
    ) -> TextObservation:
        """Begin a trial (`TrialHost.begin`); a running one ends."""
        _check_plain(seed=seed, index=index)
        with self._one_at_a_time:
            self._check_open()
            self._leave()
            with _without_reasons(self._host):
                self._trial = self._host.begin(split, index, seed)
            self._state = State(episode_id=episode_id or self._trial.session_id)
            return self._seen(self._trial, reward=None)

    def step(self, action: TextAction, timeout_s: float | None = None) -> TextObservation:
        """Take an action. Raises RuntimeError before `reset` and after the end."""
        with self._one_at_a_time:
            self._check_open()
            if self._trial is None:
                raise RuntimeError("reset the environment before the first action")
            if self._trial.over:
                raise RuntimeError("the trial is over: reset the environment")
            with _without_reasons(self._host), self._host.stepping:
                reward = self._trial.act(action.text)
            self._state.step_count += 1
            return self._seen(self._trial, reward)

    @property
    def state(self) -> State:
        """The name of the running trial and its number of actions."""
        return self._state

    def close(self) -> None:
        """End the session, after the step that it is in."""
        with self._one_at_a_time:
            self._closed = True
            self._leave()

    def get_metadata(self) -> EnvironmentMetadata:
        """The environment's name and its sentence."""
        from agentsgym import __version__

        name = self._host.env.name
        known = BUILTIN.get(name)
        description = known.help if known else f"The environment {name}, served by agentsgym."
        return EnvironmentMetadata(name=name, description=description, version=__version__)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this session was ended because nothing came for too long")

    def _leave(self) -> None:
        trial, self._trial = self._trial, None
        if trial is not None and not trial.over:
            with self._host.stepping:
                trial.close()

    def _seen(self, trial: SteppedTrial, reward: float | None) -> TextObservation:
        facts = asdict(trial.facts)
        names = TextObservation.model_fields.keys() & facts.keys() - {"done", "reward"}
        new = [{"role": m["role"], "content": m["content"]} for m in trial.new_messages]
        return TextObservation(
            done=trial.over,
            reward=reward,
            metadata=_summary(trial.rollout) if trial.over else {},
            text=new[-1]["content"] if new else "",
            messages=new,
            **{key: facts[key] for key in names},
        )


def _summary(rollout: Rollout) -> dict[str, Any]:
    """What a client is told when a trial is over."""
    if rollout.error is not None:
        logger.warning("session %s failed: %s", rollout.session_id, rollout.error)
    last = rollout.episodes[-1] if rollout.episodes else None
    return {
        "reward": finite(rollout.final_reward),
        "step_rewards": [[step.reward for step in each.steps] for each in rollout.episodes],
        "stop_reason": last.stop_reason if last else "error",
        "win": last.win if last else None,
    }


@contextmanager
def _without_reasons(host: TrialHost) -> Iterator[None]:
    """OpenEnv sends the text of an exception to the client, and that of an environment's may name a
    solution or a path: it is logged here instead."""
    try:
        yield
    except BadTask:
        raise
    except Exception:
        logger.exception("%s failed", host.env.name)
        raise RuntimeError("the environment failed; the server's log says why") from None


def _check_plain(**numbers: Any) -> None:
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise BadTask(f"{name} must be a whole number")
        if value is not None and value < 0:
            raise BadTask(f"{name} must be at least 0")
