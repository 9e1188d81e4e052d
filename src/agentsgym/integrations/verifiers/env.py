"""A taskset of verifiers as an environment."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.utils.decorators import discover_decorated
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import task_dataset
from agentsgym.envs.settings import EnvSettings, Tasks
from agentsgym.integrations.exchange import Exchange, LoopThread
from agentsgym.integrations.verifiers.export import ANSWERING, PLUGIN
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
    """Raise CannotKeep for a task with hooks on model calls, or whose prompt is more than text."""
    needs = {
        "stop hooks": [hook.__name__ for hook in task.hooks("stop")],
        "intercept hooks": [hook.__name__ for hook in discover_decorated(task, "intercept")],
        "a Docker image": task.data.image,
        "skills": task.data.skills,
    }
    for what, need in needs.items():
        if need:
            raise CannotKeep(f"{type(task).__name__} has {what}: {short_repr(need)}")
    if isinstance(task.data.prompt, list):
        for message in task.data.prompt:
            text_of(message.model_dump(mode="json", exclude_none=True), ("system", "user"))


def new_text(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> str:
    """What a conversation has beyond `before` (which ends with the agent's answer), as one text.

    Raises CannotKeep if it does not begin with `before`, or has anything but text that the user or,
    at its beginning, the system said.
    """
    if list(now[: len(before)]) != list(before):
        raise CannotKeep("the environment rewrites the conversation's history")
    roles = ("user",) if before else ("system", "user")
    return "\n\n".join(text_of(message, roles) for message in now[len(before) :])


def text_of(message: Mapping[str, Any], roles: Sequence[str]) -> str:
    """The text of a message of one of these roles; else CannotKeep."""
    content = message["content"] if message["role"] in roles else None
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = "\n".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise CannotKeep(
            f"only text of the roles {' and '.join(roles)} can be shown here, got "
            f"{short_repr(message)}"
        )
    return content


# verifiers wants to know a model; it is never asked.
_CONTEXT = vf.ModelContext(
    model="agentsgym",
    client=vf.EvalClientConfig(base_url="http://127.0.0.1:9/v1", api_key_var="AGENTSGYM_NO_KEY"),
)


def load(taskset: Mapping[str, Any], env_id: str) -> Any:
    """The environment of verifiers for a taskset, with our harness on its only seat.

    Raises CannotKeep for what our environments cannot do.
    """
    fields = {"taskset": dict(taskset), **({"id": env_id} if env_id else {})}
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
_USUAL_STOP = "user_closed"
"""verifiers' stop condition of an episode that its environment ended."""


class EpisodeFailed(RuntimeError):
    """verifiers reports an error in an episode."""


@dataclass(frozen=True, slots=True)
class RunningEpisode:
    """A running episode: `conversation` is what verifiers asks to be answered now, `text` its part
    after the agent's last answer."""

    exchange: Exchange[Any]
    conversation: Sequence[Mapping[str, Any]]
    text: str


class VerifiersEnv(MultistepEnv):
    """Plays a taskset of verifiers; a subclass names it in `taskset`.

    A task is verifiers' `TaskData`. The reward of an episode is verifiers' (`trace.reward`), on the
    last step; verifiers has no rewards of single steps. Also an episode that our limits end is
    scored by verifiers. Metrics are in `info["metrics"]`, and what the trace holds else in
    `info["verifiers"]`. A last step that earns at least `win_reward` is a win.

    Raises CannotKeep, when it is made, for a taskset that needs tools, a container, several seats
    or limits of its own; `check_task` and the session do for a task with stop or intercept hooks
    or images.
    """

    blocking = True

    taskset: ClassVar[Mapping[str, Any]] = {}
    """verifiers' configuration of the taskset: its `id`, an installed module, and its settings. It
    belongs to the class, because it names code."""

    paired_env: ClassVar[str] = ""
    """The id of an environment of verifiers that plays the taskset; by default the taskset's."""

    class Settings(EnvSettings):
        """The settings of a verifiers environment."""

        train_tasks: Tasks = Field(256, description="maximum number of training tasks")
        eval_tasks: Tasks = Field(64, description="maximum number of evaluation tasks")
        win_reward: float = Field(1.0, description="reward from which on an episode is a win")
        turn_timeout: float = Field(
            300.0, ge=0.001, description="seconds that verifiers may take for a turn"
        )

    config: Settings

    def __init__(self, tokenizer: Any = None, env_config: Mapping[str, Any] | None = None) -> None:
        super().__init__(tokenizer, env_config)
        self._foreign = load(self.taskset, self.paired_env)
        self._loop: LoopThread | None = None

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> RunningEpisode:
        task = self._task(task_data)
        check_task(task)
        exchange = self._started(task)
        try:
            conversation = exchange.wait()
            if conversation is None:
                _ended(exchange)
                raise EpisodeFailed("the episode ended without asking the agent")
            return RunningEpisode(exchange, conversation, new_text([], conversation))
        except BaseException:
            exchange.close()
            raise

    def _format_prompt(self, state: RunningEpisode, step: int) -> str:
        return state.text

    def _step_episode(
        self, session_id: str, state: RunningEpisode, action: str
    ) -> tuple[RunningEpisode, float, bool, dict[str, Any]]:
        state.exchange.say(action)
        conversation = state.exchange.wait()
        if conversation is None:
            trace = _ended(state.exchange)
            return state, trace.reward, True, self._info(trace)
        messages = [*state.conversation, {"role": "assistant", "content": action}]
        text = new_text(messages, conversation)
        return replace(state, conversation=conversation, text=text), 0.0, False, {}

    def _calculate_reward(
        self,
        state: RunningEpisode,
        actions: Sequence[str],
        final_action: str,
        step_rewards: Sequence[float],
    ) -> float:
        """verifiers' reward, also where a limit of ours ended the episode."""
        if not state.exchange.over:
            state.exchange.end()
            if state.exchange.wait() is not None:
                raise CannotKeep("the environment goes on asking after the episode's end")
        return float(_ended(state.exchange).reward)

    def _end_episode(self, session_id: str, state: RunningEpisode) -> None:
        state.exchange.close()

    def _info(self, trace: Any) -> dict[str, Any]:
        metrics = {name: value for name, value in trace.metrics.items() if value is not None}
        info = {
            "metrics": metrics,
            "verifiers": dict(trace.info),
            "win": trace.reward >= self.config.win_reward,
        }
        stop = None if trace.stop_condition == _USUAL_STOP else trace.stop_condition
        return info | ({"stop_reason": stop} if stop else {})

    def _started(self, task: Any) -> Exchange[Any]:
        """An episode of a task; its result is verifiers' `Episode`. If the loop has died there is
        another one, with another environment: what the old loop served may still be closing."""
        with _STARTING:
            if self._loop is None or not self._loop.alive:
                if self._loop is not None:
                    self._foreign = load(self.taskset, self.paired_env)
                self._loop = serving_loop(self._foreign)
            foreign, loop = self._foreign, self._loop

        async def episode(exchange: Exchange[Any]) -> Any:
            ANSWERING.set(exchange)
            return await foreign.run_episode(task, _CONTEXT)

        return Exchange(loop, episode, timeout=self.config.turn_timeout)

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

    def get_train_dataset(self) -> Any:
        """The first tasks of the taskset but for those of the evaluation."""
        return task_dataset(self, self._split()[0])

    def get_eval_dataset(self) -> Any:
        """The tasks after those of the training: at most `eval_tasks`, at most a fifth."""
        return task_dataset(self, self._split()[1])

    def _split(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        train, held_out = self.config.train_tasks, self.config.eval_tasks
        tasks = self._foreign.taskset.take(train + held_out)
        data = [_as_task_data(task.data) for task in tasks]
        spare = max(len(data) - train, len(data) // _LARGEST_EVAL_SHARE)
        cut = len(data) - min(held_out, spare)
        return data[:cut], data[cut:]


_STARTING = threading.Lock()


def _as_task_data(data: Any) -> dict[str, Any]:
    """verifiers' task as plain data, without the fields that are as by default."""
    whole = data.model_dump(mode="json", exclude_none=True)
    changed = data.model_dump(mode="json", exclude_defaults=True)
    return {name: whole[name] for name in changed if name in whole}


def _ended(exchange: Exchange[Any]) -> Any:
    """The trace of an episode that is over. Raises EpisodeFailed with verifiers' errors."""
    episode = exchange.result
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if errors or not episode.ok:
        last = errors[-1] if errors else None
        how = f"{last.type}: {last.message}\n{last.traceback or ''}" if last else "no reason given"
        raise EpisodeFailed(f"verifiers reports an error in the episode: {how}")
    if len(episode.traces) != 1:
        raise CannotKeep(f"the episode has {len(episode.traces)} traces, one is allowed")
    return episode.traces[0]
