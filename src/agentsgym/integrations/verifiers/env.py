"""A taskset of verifiers as an environment: its episode is a program, whose model is the agent."""

import threading
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.utils.decorators import discover_decorated
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from agentsgym.envs.program.env import ProgramEnv
from agentsgym.envs.program.run import ClientSettings
from agentsgym.envs.settings import Tasks
from agentsgym.generation.loop_thread import LoopThread
from agentsgym.integrations.verifiers.export import ENDPOINT, PLUGIN
from agentsgym.types.text import short_repr

_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens")


class CannotKeep(ValueError):
    """A taskset needs something that an environment of agentsgym does not have."""


def only_seat(config: Any, seats: Mapping[str, Any]) -> str:
    """The name of the only agent. Raises CannotKeep for several, and for limits of their own."""
    name = config.taskset.id
    if len(seats) != 1:
        raise CannotKeep(f"taskset {name!r} has several seats ({', '.join(seats)}); one is allowed")
    ((seat, agent),) = seats.items()
    limits = [limit for limit in _LIMITS if getattr(agent, limit) is not None]
    if limits:
        raise CannotKeep(
            f"seat {seat!r} of taskset {name!r} has the limit {limits[0]}; use "
            "max_steps_per_episode and max_rollout_tokens"
        )
    return seat


def check_taskset(taskset: Any) -> None:
    """Raise CannotKeep for a taskset with tools, or whose tasks need a container."""
    config, task_type = taskset.config, type(taskset).task_type()
    if taskset.toolsets(config) or task_type.toolsets(config.task):
        raise CannotKeep(f"taskset {config.id!r} has tools")
    if task_type.NEEDS_CONTAINER:
        raise CannotKeep(f"taskset {config.id!r} needs a container")


def check_task(task: Any) -> None:
    """Raise CannotKeep for a task with hooks on model calls, which our harness would pass by."""
    needs = {
        "stop hooks": [hook.__name__ for hook in task.hooks("stop")],
        "intercept hooks": [hook.__name__ for hook in discover_decorated(task, "intercept")],
        "a Docker image": task.data.image,
        "skills": task.data.skills,
    }
    for what, need in needs.items():
        if need:
            raise CannotKeep(f"{type(task).__name__} has {what}: {short_repr(need)}")


# verifiers wants to know a model; it is never asked.
_CONTEXT = vf.ModelContext(
    model="agentsgym",
    client=vf.EvalClientConfig(base_url="http://127.0.0.1:9/v1", api_key_var="AGENTSGYM_NO_KEY"),
)


def load(taskset: Mapping[str, Any]) -> Any:
    """The environment of verifiers for a taskset, with our harness on its only seat.

    Raises CannotKeep for what our environments cannot do.
    """
    fields = {"taskset": dict(taskset)}
    plain = resolve_env_config(fields)
    seat = only_seat(plain, agent_config_fields(plain))
    ours = {"harness": {"id": PLUGIN}, "runtime": {"type": "subprocess"}}
    env = load_environment(resolve_env_config({**fields, seat: ours}))
    check_taskset(env.taskset)
    return env


def serving_loop(env: Any) -> LoopThread:
    """An event loop in which `env` is served until the loop ends."""
    loop, stack = LoopThread("agentsgym-verifiers"), AsyncExitStack()
    loop.run(stack.enter_async_context(env.serving()))
    loop.at_end(stack.aclose)
    return loop


_LARGEST_EVAL_SHARE = 5
_STARTING = threading.Lock()


class EpisodeFailed(RuntimeError):
    """verifiers reports an error in an episode."""


class VerifiersEnv(ProgramEnv):
    """Plays a taskset of verifiers; a subclass names it in `taskset`.

    A task is verifiers' `TaskData`. The reward of an episode is verifiers' (`trace.reward`), on the
    last step; verifiers has no rewards of single steps. Metrics are in `info["metrics"]`, and what
    the trace holds else in `info["verifiers"]`. An episode that earns at least `win_reward` is a
    win. The tasks are those of the taskset, or of the files `tasks` and `eval_tasks`.

    Raises CannotKeep, when it is made, for a taskset that needs tools, a container, several seats
    or limits of its own; `check_task` and the session do for a task with stop or intercept hooks.
    """

    taskset: ClassVar[Mapping[str, Any]] = {}
    """verifiers' configuration of the taskset: its `id`, an installed module, and its settings. It
    belongs to the class, because it names code."""

    class Settings(ProgramEnv.Settings):
        """The settings of a verifiers environment."""

        train_tasks: Tasks = Field(256, description="maximum number of training tasks")
        held_out_tasks: Tasks = Field(64, description="maximum number of evaluation tasks")
        win_reward: float = Field(1.0, description="reward from which on an episode is a win")

    config: Settings

    def _set_up(self) -> None:
        super()._set_up()
        self._foreign = load(self.taskset)
        self._loop: LoopThread | None = None

    def run(self, task: dict[str, Any], client: ClientSettings) -> dict[str, Any]:
        """Play an episode of verifiers. Raises CannotKeep, EpisodeFailed, LoopDied."""
        made = self._task(task)
        check_task(made)
        foreign, loop = self._serving()
        trace = _only_trace(loop.run(_play(foreign, made, f"{client.session_url}/v1")))
        return {
            "reward": trace.reward,
            "win": trace.reward >= self.config.win_reward,
            "metrics": {name: one for name, one in trace.metrics.items() if one is not None},
            "verifiers": dict(trace.info),
        }

    def _serving(self) -> tuple[Any, LoopThread]:
        """verifiers' environment and its loop. If that has died there is another one, with another
        environment: what the old loop served may still be closing."""
        with _STARTING:
            if self._loop is None or not self._loop.alive:
                if self._loop is not None:
                    self._foreign = load(self.taskset)
                self._loop = serving_loop(self._foreign)
            return self._foreign, self._loop

    # -- tasks ----------------------------------------------------------------------------------

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        """The data must be of the taskset's type, and the task one that can be kept."""
        try:
            check_task(self._task(task_data))
        except ValueError as error:  # pydantic's errors are ValueErrors too
            return str(error)
        return None

    def _task(self, task_data: Mapping[str, Any]) -> Any:
        taskset = self._foreign.taskset
        task_type = type(taskset).task_type()
        data = task_type.data_type().model_validate(dict(task_data))
        return task_type(data, taskset.config.task)

    def _tasks(self, held_out: bool) -> Iterable[Mapping[str, Any]]:
        """The files; without `tasks` the first tasks but for those of the evaluation, and without
        `eval_tasks` those after the training's: at most a fifth."""
        if (self.config.eval_tasks if held_out else self.config.tasks) is not None:
            return super()._tasks(held_out)
        return self._split()[held_out]

    def _split(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        train, held_out = self.config.train_tasks, self.config.held_out_tasks
        tasks = self._foreign.taskset.take(train + held_out)
        data = [_as_task_data(task.data) for task in tasks]
        spare = max(len(data) - train, len(data) // _LARGEST_EVAL_SHARE)
        cut = len(data) - min(held_out, spare)
        return data[:cut], data[cut:]


async def _play(foreign: Any, task: Any, endpoint: str) -> Any:
    """verifiers' episode of a task, whose turns are answered by the endpoint."""
    ENDPOINT.set(endpoint)
    try:
        return await foreign.run_episode(task, _CONTEXT)
    except (SystemExit, KeyboardInterrupt) as error:  # it would end the loop
        raise EpisodeFailed(f"{type(error).__name__}: {error}") from error


def _only_trace(episode: Any) -> Any:
    """The trace of an episode that is over. Raises EpisodeFailed with verifiers' errors."""
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if errors or not episode.ok:
        last = errors[-1] if errors else None
        how = f"{last.type}: {last.message}\n{last.traceback or ''}" if last else "no reason given"
        raise EpisodeFailed(f"verifiers reports an error in the episode: {how}")
    if len(episode.traces) != 1:
        raise CannotKeep(f"the episode has {len(episode.traces)} traces, one is allowed")
    return episode.traces[0]


def _as_task_data(data: Any) -> dict[str, Any]:
    """verifiers' task as plain data, without the fields that are as by default."""
    whole = data.model_dump(mode="json", exclude_none=True)
    changed = data.model_dump(mode="json", exclude_defaults=True)
    return {name: whole[name] for name in changed if name in whole}
