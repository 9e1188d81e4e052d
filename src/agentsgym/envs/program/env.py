"""ProgramEnv: the calls that a program makes of the model are the steps of an episode."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agentsgym.envs.dataset import ListedTasks, TaskFile
from agentsgym.envs.extras import ensure
from agentsgym.envs.program.run import ClientSettings, ProgramEnd, ProgramRun, program_server
from agentsgym.envs.settings import RESERVED, EnvSettings, OptionalPath
from agentsgym.generation.serving.calls import CallRefused
from agentsgym.types import Answer, ModelCall, TrialInfo
from agentsgym.types.foreign import checked_number, listed, number
from agentsgym.types.names import ConfigError, import_from_here, import_path
from agentsgym.types.text import short_repr

MOST_PROGRAMS = 1024
"""Limit of programs at once: each has a thread that waits for its next call."""


class ProgramFailed(RuntimeError):
    """A program did not do its part; the message says what it did instead."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramState:
    """A program that waits for the answer to `call`. `until` is the end of its time (monotonic
    seconds), `posted` what it posted as the reward of each earlier call."""

    run: ProgramRun
    call: ModelCall
    until: float
    posted: tuple[float, ...] = ()


class ProgramEnv(ListedTasks):
    """A program that calls a model through the APIs of OpenAI or Anthropic, such as an agent that
    exists already. Each of its calls is a step; what it returns is the reward.

    The program is a function `run(task, client)`, sync or async, or a command; or a subclass
    overrides `run`. It returns the reward of the episode, which goes to its last step, or a list
    with one reward per call in the order of the answers, or a dict with that as `"reward"` and
    with `"win"` or `"metrics"`. It may also post rewards while it runs. Answers are sampled with
    the settings of the run, whatever temperature the program asks for; its `max_tokens` and `stop`
    count. The episodes of a trial are runs of the program; `client.trial` has the outcomes of the
    earlier ones. With `carry: full` a later run may continue an earlier one's conversation.

    A program that raises, exits with a status other than 0, runs out of time or never calls the
    model fails its own rollout. One that calls after `max_steps_per_episode` calls is ended there,
    and has the rewards that it posted.

    Raises MissingExtra without the extra `endpoint`, and ConfigError unless exactly one program
    is named.
    """

    blocking = True

    class Settings(EnvSettings):
        """The settings of a program."""

        max_steps_per_episode: int = Field(50, description="calls of the model per episode")
        function: Annotated[str | None, RESERVED] = Field(
            None, description="dotted path of the function `run(task, client)`"
        )
        command: Annotated[list[str], RESERVED] = Field(
            [], description="the command and its arguments; its last line is the reward"
        )
        tasks: OptionalPath = Field(None, description="JSON lines: the training tasks")
        eval_tasks: OptionalPath = Field(None, description="JSON lines: the evaluation tasks")
        time_limit: float = Field(600.0, gt=0, description="seconds that an episode may take")
        programs: int = Field(64, ge=1, le=MOST_PROGRAMS, description="programs that run at once")

    config: Settings

    def _set_up(self) -> None:
        for module in ("starlette", "uvicorn"):
            ensure(module, "endpoint")
        config = self.config
        own = type(self).run is not ProgramEnv.run
        if own + bool(config.function) + bool(config.command) != 1:
            raise ConfigError(
                f"{self.name}: name the program, as env_config.function or env_config.command, or "
                "override run in a subclass; exactly one of them"
            )
        if config.carry == "summary":
            raise ConfigError(f"{self.name}: carry must be none or full: a program can't reflect")
        if config.context_limit is not None:
            raise ConfigError(f"{self.name}: context_limit must be None: a program takes no notes")
        self.most_sessions = config.programs
        self._function: Any = None
        if config.function:
            import_from_here(config.function)
            self._function = import_path(config.function, True)

    @property
    def offers_tools(self) -> bool:
        return True

    def run(self, task: dict[str, Any], client: ClientSettings) -> Any:
        """Run the program on a task and return its reward or rewards; may be async."""
        return self._function(task, client)

    def _tasks(self, held_out: bool) -> Iterable[Mapping[str, Any]]:
        key = "eval_tasks" if held_out else "tasks"
        path = getattr(self.config, key)
        if path is None:
            raise ConfigError(f"{self.name}: env_config.{key} must name a file of tasks")
        tasks = TaskFile(Path(path).expanduser())
        for line, task in enumerate(tasks, 1):
            if not isinstance(task, dict):
                raise ConfigError(
                    f"{path}, line {line}: a task must be an object, got {short_repr(task)}"
                )
        return tasks

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> ProgramState:
        return self._begin_episode(session_id, task_data, self.trial_info())

    def _begin_episode(
        self, session_id: str, task_data: dict[str, Any], trial: TrialInfo
    ) -> ProgramState:
        if isinstance(trial.last_state, ProgramState):
            self._end_episode(session_id, trial.last_state)
        server, until = program_server(), time.monotonic() + self.config.time_limit
        run = server.open(session_id)
        client = ClientSettings(server.base_url, run.key, session_id, trial.without_state())
        try:
            if self.config.command:
                run.start_command(self.config.command, client, task_data)
            else:
                run.start_function(lambda: self.run(task_data, client))
            event = self._next(run, until, 0)
            if isinstance(event, ProgramEnd):
                said = f": {event.output.strip()}" if event.output.strip() else ""
                raise ProgramFailed(f"the program ended without a call of the model{said}")
        except BaseException:
            server.close(run, "the session has failed")
            raise
        return ProgramState(run, event, until)

    def _end_episode(self, session_id: str, state: ProgramState) -> None:
        program_server().close(state.run, "the episode is over")

    def _format_prompt(self, state: ProgramState, step: int) -> Any:
        return state.call

    def _step_episode(
        self, session_id: str, state: ProgramState, action: Answer
    ) -> tuple[ProgramState, float, bool, dict[str, Any]]:
        run, refused = state.run, action.error
        run.reply(action if refused is None else CallRefused(refused))
        answered = len(state.posted) + (refused is None)
        event = self._next(run, state.until, answered)
        if not answered:  # each call so far was refused
            if isinstance(event, ProgramEnd):
                raise ProgramFailed(f"the program ended, and its calls were refused: {refused}")
            return replace(state, call=event), 0.0, False, {}
        posted = run.rewards(answered)
        if isinstance(event, ModelCall):
            late = posted[:-1] != state.posted[: answered - 1]
            info: dict[str, Any] = {"step_rewards": list(posted)} if late else {}
            return replace(state, call=event, posted=posted), posted[-1], False, info
        reward, info = _outcome(event, posted)
        return state, reward, True, info

    def _next(self, run: ProgramRun, until: float, calls: int) -> ModelCall | ProgramEnd:
        """What the program does next. Raises ProgramFailed if it fails or its time is over."""
        try:
            event = run.next_event(until - time.monotonic())
        except TimeoutError:
            raise ProgramFailed(
                f"the program made {calls} calls of the model and did not end within "
                f"time_limit={self.config.time_limit:g} s"
            ) from None
        if isinstance(event, ProgramEnd) and event.error is not None:
            raise ProgramFailed(f"the program failed after {calls} calls: {event.error.strip()}")
        return event


def _outcome(end: ProgramEnd, posted: tuple[float, ...]) -> tuple[float, dict[str, Any]]:
    """The last step's reward and info, with what was `posted` for each step. Raises ProgramFailed
    for a result that is no reward."""
    result = dict(end.result) if isinstance(end.result, Mapping) else {"reward": end.result}
    reward = result.pop("reward", None)
    info = result | ({"output": end.output} if end.output else {})
    entries = listed(reward) or [*[0.0] * (len(posted) - 1), reward]
    rewards = [_number(one) for one in entries]
    for step, more in enumerate(posted[: len(rewards)]):
        rewards[step] += more
    return rewards[-1], info | {"step_rewards": rewards}


def _number(reward: Any) -> float:
    if number(reward) is None:
        raise ProgramFailed(
            f"the program must return a reward, or a list with one for each call, got "
            f"{short_repr(reward)}"
        )
    return checked_number(reward, "the program's reward")
