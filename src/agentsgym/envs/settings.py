"""The settings of an environment: a typed class, read from `env_config`.

An author declares them in one class, and reads them as attributes of `env.config`:

    class Settings(EnvSettings):
        max_steps_per_episode: int = 4                # another default for a common key
        hints: int = Field(4, ge=0, description="opening hints")

`env_config` stays a dict where data crosses a border: in `make`, in dataset rows, in run files.

A dataset row is data, so its `env_config` can't make this process read arbitrary files, contact a
server, hang, or fill the memory. It may name files in agentsgym's cache and under `ALFWORLD_DATA`,
and repeat the paths, servers and sizes that this program itself gave to an environment, as the rows
of that environment's own dataset do. Environments that the program makes itself have no such
limits.
"""

import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from agentsgym.types import session_seed
from agentsgym.types.names import ConfigError, checked_path, real_path
from agentsgym.types.reward_placement import FINAL_REWARDS, REWARD_PLACEMENTS
from agentsgym.types.settings import MOST, Count, CountOrZero, NotNegative, Section, read
from agentsgym.types.text import short_repr

NONE_HINT = (
    " (in a dataset whose columns are Arrow structs, the keys of other rows become None: make "
    "the columns datasets.Json(), as agentsgym.task_dataset does)"
)
Settings = TypeVar("Settings", bound="EnvSettings")


class Mark:
    """A mark of a setting that could do harm if a dataset row chose it."""


PATH = Mark()
"""Marks a setting that names a file or folder: dataset rows may name some only."""
RESERVED = Mark()
"""Marks a server's address, what is sent there as a key, or a program to run: dataset rows may only
repeat what this program itself gave."""

OptionalPath = Annotated[str | None, PATH]
Tasks = Annotated[int, Field(ge=1, le=1_000_000)]
"""A number of tasks."""
TasksPerSolution = Annotated[int, Field(ge=1, le=1_000)]
"""A number of tasks for each secret, code or the like."""
Carry = Literal["none", "full", "summary"]
_Tokens = Annotated[int, Field(ge=1, le=MOST)]


def _one_or_range(limit: int | list[int] | None) -> int | list[int] | None:
    """Raises ValueError for a list that is no range."""
    if isinstance(limit, list) and (len(limit) != 2 or limit[0] > limit[1]):
        raise ValueError(f"must be a number or [smallest, largest], got {short_repr(limit)}")
    return limit


ContextLimit = Annotated[_Tokens | list[_Tokens] | None, AfterValidator(_one_or_range)]
"""A number of tokens, or the smallest and largest of a range."""


def _explained(text: str, values: Mapping[str, str]) -> str:
    return f"{text}: " + "; ".join(f"{name!r} {help}" for name, help in values.items())


class EnvSettings(Section):
    """The settings that every environment has.

    A subclass adds its own as pydantic fields. If it declares a common one again, that changes
    only the default and the description: type and range stay.
    """

    model_config = ConfigDict(frozen=True)

    max_steps_per_episode: Count = Field(20, description="actions per episode")
    episodes_per_trial: Count = Field(1, description="episodes on the same task")
    free_shots: CountOrZero = Field(0, description="first episodes of a trial that are not scored")
    error_allowance: CountOrZero = Field(
        1, description="consecutive malformed actions that are forgiven"
    )
    action_form: Literal["text", "tool"] = Field(
        "text",
        description="whether a model writes an action as plain text or as the call of a tool "
        "`act(action)`, in its chat template's own form",
    )
    actions: Literal["free", "constrained", "whole"] = Field(
        "free",
        description="what a model may answer: 'free' whatever it writes; one of the environment's "
        "admissible actions, chosen token by token ('constrained') or by the probability of the "
        "'whole' action, which is then part of the policy that is sampled, trained and evaluated",
    )
    explain_actions: bool = Field(
        True,
        description="whether the first prompt of an episode says the form of an action, with a "
        "legal example",
    )
    system_prompt: str | None = Field(None, description="system message before the first prompt")
    reward_placement: Literal["spread", "broadcast", "last_token"] = Field(
        "spread",
        description=_explained(
            "how a step's reward is put on its agent tokens in per_token_rewards",
            REWARD_PLACEMENTS,
        ),
    )
    final_reward: Literal["last_step", "repeat", "spread"] = Field(
        "last_step",
        description=_explained("which reward the steps show in per_token_rewards", FINAL_REWARDS),
    )
    carry: Carry = Field(
        "none", description="what an episode shows of the trial's earlier episodes"
    )
    reflection_tokens: Annotated[int, Field(ge=1, le=100_000)] = Field(
        128, description="token cap of a reflection (carry='summary') or note (context_limit)"
    )
    context_limit: ContextLimit = Field(
        None,
        description="most tokens of a conversation before an action: instead of a prompt that "
        "would pass it, the agent is asked for a note, and the episode goes on from that in a "
        "new conversation; of a range [smallest, largest], each task draws its own limit",
    )
    malformed_penalty: NotNegative = Field(
        0.0, description="subtracted from the reward of a malformed action, also in free shots"
    )
    workers: Annotated[int, Field(ge=0, le=256)] = Field(
        0, description="processes that play the episodes; 0: this process"
    )
    worker_timeout: Annotated[float, Field(ge=0.001, le=3600)] = Field(
        120.0, description="seconds to wait for a worker's answer before replacing it"
    )

    def limit_for(self, task_data: Mapping[str, Any]) -> int | None:
        """The context limit of a task, the same in all its rollouts."""
        if not isinstance(self.context_limit, list):
            return self.context_limit
        smallest, largest = self.context_limit
        task = json.dumps(task_data, sort_keys=True, default=repr)
        return smallest + session_seed("context_limit", task) % (largest - smallest + 1)

    @property
    def several_conversations(self) -> str:
        """What gives a trial several conversations; "" if it has one."""
        if self.context_limit is not None:
            return f"context_limit={self.context_limit}"
        several = self.episodes_per_trial > 1 and self.carry != "full"
        return f"carry={self.carry!r}" if several else ""

    def __init_subclass__(cls, **options: Any) -> None:
        """Keep the types of the common settings that the subclass declares again."""
        super().__init_subclass__(**options)
        own = inspect.get_annotations(cls)
        cls.__annotations__ = {name: _COMMON.get(name, kind) for name, kind in own.items()}

    @model_validator(mode="after")
    def _check_trial(self) -> Self:
        if self.free_shots >= self.episodes_per_trial:
            raise ValueError(
                f"free_shots must be less than episodes_per_trial ({self.episodes_per_trial}), got "
                f"{self.free_shots}"
            )
        return self


_COMMON = {
    name: Annotated[EnvSettings.__annotations__[name], Field(description=field.description)]
    for name, field in EnvSettings.model_fields.items()
}


def read_settings(env_name: str, kind: type[Settings], config: Mapping[str, Any]) -> Settings:
    """The typed settings of an `env_config`.

    Raises ConfigError with the environment, the key, the value, and the allowed values.
    """
    try:
        return read(kind, dict(config), "env_config.")
    except ConfigError as error:
        hint = NONE_HINT if None in config.values() else ""
        raise ConfigError(f"{env_name}: {error}{hint}") from None


# -- what the settings of a dataset row may say --------------------------------------------------

MOST_ACTIONS = 100_000
"""Limit for one trial: steps of an episode times episodes."""
_OWN: set[Path | tuple[tuple[str, str], ...]] = set()
_HAND_OVER = "; if this is intended, pass the environment object with envs=[env]"


def remember_own(kind: type[EnvSettings], config: Mapping[str, Any]) -> None:
    """Let rows repeat the paths, servers and sizes of this configuration from now on."""
    _OWN.update(map(real_path, paths_of(kind, config).values()))
    _OWN.add(_plain(reserved_of(kind, config)))


def check_row_config(env_name: str, kind: type[EnvSettings], config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a row's configuration names what it may not."""
    own = [path for path in _OWN if isinstance(path, Path)]
    for name, path in paths_of(kind, config).items():
        try:
            checked_path(path, [*task_directories(), *own])
        except (ValueError, RuntimeError, OSError) as error:
            raise ConfigError(f"{env_name}: env_config.{name}: {error}") from None
    values = reserved_of(kind, config)
    if values and _plain(values) not in _OWN:
        keys = ", ".join(f"env_config.{name}" for name in values)
        raise ConfigError(
            f"{env_name}: {keys}: a row may only repeat what this program gave to an environment"
            f"{_HAND_OVER}"
        )


def check_limits(env_name: str, config: EnvSettings) -> None:
    """Raise ConfigError if a row's complete configuration exceeds the limit of a trial."""
    actions = config.max_steps_per_episode * config.episodes_per_trial
    if actions > MOST_ACTIONS:
        raise ConfigError(
            f"{env_name}: a row may request at most {MOST_ACTIONS} actions in a trial, got "
            f"{actions}{_HAND_OVER}"
        )


def cache_folder(name: str, folder: str | None = None) -> Path:
    """`folder`, else the folder `name` in agentsgym's cache (XDG_CACHE_HOME or ~/.cache)."""
    if folder is not None:
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "agentsgym" / name


def task_directories(*, trusted: bool = False) -> list[Path]:
    """Directories in which the tasks of any environment may name files: all, if the caller trusts
    the tasks."""
    official = os.environ.get("ALFWORLD_DATA")
    shared = [str(cache_folder("")), *([official] if official else [])]
    return [Path(Path.cwd().anchor)] if trusted else [real_path(path) for path in shared]


def paths_of(kind: type[EnvSettings], config: Mapping[str, Any]) -> dict[str, str]:
    """The files and folders that a configuration names, by their keys."""
    values = _marked(kind, config, PATH)
    return {name: value for name, value in values.items() if isinstance(value, str)}


def reserved_of(kind: type[EnvSettings], config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a configuration that only the program itself may choose."""
    return _marked(kind, config, RESERVED)


def _marked(kind: type[EnvSettings], config: Mapping[str, Any], mark: Mark) -> dict[str, Any]:
    names = [name for name, field in kind.model_fields.items() if mark in field.metadata]
    return {name: config[name] for name in names if config.get(name)}


def _plain(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(values[name])) for name in sorted(values))
