"""OpenEnvEnv: the environment of any OpenEnv server, played as one of ours."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from agentsgym.envs.dataset import ListedTasks
from agentsgym.envs.settings import RESERVED, EnvSettings, Tasks
from agentsgym.generation.http import Refused
from agentsgym.generation.settings import read_key
from agentsgym.integrations.openenv.client import NotAccepted, OpenEnvServer, ServerAnswer
from agentsgym.types.names import ConfigError
from agentsgym.types.settings import Count
from agentsgym.types.text import plain, short_repr

_EVAL_SEEDS = 2**30  # evaluation tasks are seeds from here on


@dataclass(frozen=True, slots=True)
class RunningSession:
    """A session: its connection and the text that the agent reads now."""

    line: Any
    text: str


def _check_address(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"must be an address (http://HOST:PORT), got {short_repr(url)}")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must hold neither a password nor a query; key_env names a token")
    return url


class OpenEnvEnv(ListedTasks):
    """Any server of the OpenEnv protocol; `base_url` names it.

    `task_data` are the arguments of the server's `reset`: `{"seed": int}`, or with `train_split`
    and `eval_split` `{"split": str, "index": int}`. Each session has a connection of its own, which
    ends with it. A session waits for a place on a server that is full. An action that the server
    refuses because of its form is malformed; any other error of the server fails the session.

    Of a server's observations and metadata, the keys `win` (bool), `stop_reason` (str), `malformed`
    (bool) and `failed` (bool) mean what they mean in ours. A server of trials of several episodes
    (`episodes`) is refused.

    Raises MissingExtra without the extra `http`, ConfigError for a missing address, and MissingKey.
    """

    blocking = True

    class Settings(EnvSettings):
        """The settings of an OpenEnv server."""

        max_steps_per_episode: int = Field(
            100, description="actions per episode, if the server does not end it before"
        )
        base_url: Annotated[str | None, AfterValidator(_check_address), RESERVED] = Field(
            None, description="the server's address"
        )
        key_env: Annotated[str | None, RESERVED] = Field(
            None, description="environment variable with the token that the server asks for"
        )
        sessions: Count = Field(16, description="sessions at once, at most the server's")
        timeout: float = Field(60.0, ge=0.001, description="seconds that an answer may take")
        patience: float = Field(
            60.0, ge=0, description="seconds to wait for a place while none becomes free"
        )
        action_field: str = Field("text", description="field of an action that the agent fills")
        observation_field: str = Field(
            "text", description="field of an observation that the agent reads"
        )
        action_json: bool = Field(
            False, description="the agent writes the whole action, as a JSON object"
        )
        first_prompt: str = Field(
            "", description="text before the first observation, such as the rules"
        )
        train_split: str | None = Field(
            None, description="the server's split with the training tasks; None: seeds"
        )
        eval_split: str | None = Field(
            None, description="the server's split with the evaluation tasks; None: seeds"
        )
        train_tasks: Tasks = Field(64, description="training tasks")
        eval_tasks: Tasks = Field(32, description="evaluation tasks")

    config: Settings

    def _set_up(self) -> None:
        config = self.config
        if config.base_url is None:
            raise ConfigError(f"{self.name}: env_config.base_url must name a server")
        if config.workers:
            raise ConfigError(f"{self.name}: the server plays the episodes; leave workers out")
        self.most_sessions = config.sessions
        self._server = OpenEnvServer(
            config.base_url.rstrip("/"),
            read_key(config.key_env),
            config.timeout,
            config.patience,
        )

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> RunningSession:
        line, seen = self._server.begin(task_data)
        try:
            if seen.done:
                raise self._refused("the server's episode is over before the first action")
            if seen.fields.get("episodes", 1) != 1:
                raise self._refused(
                    "the server plays trials of several episodes: let it serve single episodes, "
                    "and set env_config.episodes_per_trial here"
                )
            return RunningSession(line, self._text(seen))
        except BaseException:
            self._server.leave(line)
            raise

    def _format_prompt(self, state: RunningSession, step: int) -> str:
        first = self.config.first_prompt
        return f"{first}\n\n{state.text}" if step == 0 and first else state.text

    def _step_episode(
        self, session_id: str, state: RunningSession, action: str
    ) -> tuple[RunningSession, float, bool, dict[str, Any]]:
        try:
            seen = self._server.step(state.line, self._payload(action))
        except NotAccepted as error:
            text = f"The environment did not accept that action. {error.reason}"
            return replace(state, text=text), 0.0, False, {"malformed": True}
        return replace(state, text=self._text(seen)), seen.reward, seen.done, _info(seen)

    def _end_episode(self, session_id: str, state: RunningSession) -> None:
        self._server.leave(state.line)

    def _payload(self, action: str) -> dict[str, Any]:
        """The action as the server takes it. Raises NotAccepted for what is no JSON object."""
        if not self.config.action_json:
            return {self.config.action_field: action}
        try:
            fields = json.loads(action)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise NotAccepted(str(self.config.base_url), "An action is a JSON object here.")
        return fields

    def _text(self, seen: ServerAnswer) -> str:
        """What the agent reads; JSON if the field holds no text."""
        if seen.fields.get("failed") is True:
            raise self._refused("the server's environment failed in this session")
        field = self.config.observation_field
        if field not in seen.observation:
            raise self._refused(
                f"its observations have the fields {short_repr(sorted(seen.observation))}: set "
                "env_config.observation_field to the one that the agent reads"
            )
        value = seen.observation[field]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def _refused(self, why: str) -> Refused:
        return Refused(str(self.config.base_url), why)

    # -- tasks ----------------------------------------------------------------------------------

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        """A task holds plain values under the names of `reset`'s arguments."""
        if not task_data:
            return "task_data must name a task to the server, such as {'seed': 3}"
        if plain(dict(task_data)) != dict(task_data):
            return f"task_data must be plain data, got {short_repr(dict(task_data))}"
        return None

    def _tasks(self, held_out: bool) -> list[dict[str, Any]]:
        """Tasks of `train_split` or `eval_split`; without it seeds from 0, or others that are held
        out. The server is asked whether a task is one."""
        config, first = self.config, _EVAL_SEEDS if held_out else 0
        split = config.eval_split if held_out else config.train_split
        number = config.eval_tasks if held_out else config.train_tasks
        tasks: list[dict[str, Any]] = [{"seed": first + k} for k in range(number)]
        if split is not None:
            tasks = [{"split": split, "index": k} for k in range(number)]
        self._server.check(tasks[0])
        return tasks


def _info(seen: ServerAnswer) -> dict[str, Any]:
    """What our environments say about an action, as far as the server says it."""
    names = ("malformed", "win", "stop_reason") if seen.done else ("malformed",)
    return {name: seen.fields[name] for name in names if seen.fields.get(name) is not None}
