"""A command as a class: its fields are the arguments and options, its docstrings their help."""

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import Annotated, Any, TypeVar

import typer
from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo, ParameterInfo

from agentsgym.runs.settings import RunConfig
from agentsgym.runs.sources import merge, parse_overrides
from agentsgym.types.names import ConfigError, unknown_key
from agentsgym.types.settings import read

T = TypeVar("T")


class Command(BaseModel):
    """A command; calling an instance does the work.

    The docstring of a subclass is the command's help, and the docstring below a field the field's.
    A field is an option unless its annotation is an `Argument`. Validators of the class raise
    ConfigError for options that exclude each other.
    """

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    def __call__(self) -> None:
        """Do the work."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """The given fields that are a `setting` of a run, by their dotted keys."""
        fields = {n: one.json_schema_extra for n, one in type(self).model_fields.items()}
        of_run = {n: str(extra["key"]) for n, extra in fields.items() if isinstance(extra, dict)}
        values = {key: getattr(self, name) for name, key in of_run.items()}
        return {key: value for key, value in values.items() if value is not None}


def setting(key: str) -> Any:
    """A field that stands for the setting of a run with this dotted key, and has its help."""
    fields: Any = RunConfig.model_fields
    *sections, name = key.split(".")
    for section in sections:
        fields = fields[section].annotation.model_fields
    help = f"{fields[name].description} [{key}]"
    return Field(default=None, description=help, json_schema_extra={"key": key})


def as_function(command: type[Command]) -> Callable[..., None]:
    """A function with the parameters that typer makes arguments and options of."""

    def run(**values: Any) -> None:
        given = {name: value for name, value in values.items() if value is not None}
        read(command, given)()

    parameters = [_parameter(*item) for item in command.model_fields.items()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    own = [one for one in field.metadata if isinstance(one, ParameterInfo)]
    flag = (f"--{name.replace('_', '-')}",) if field.annotation is bool else ()
    info = copy(own[0]) if own else typer.Option(*flag)
    info.help = field.description
    if isinstance(info, ArgumentInfo):
        info.metavar = info.metavar or name.upper()
    for limit in field.metadata:
        if isinstance(limit, Ge | Le):
            setattr(info, *(("min", limit.ge) if isinstance(limit, Ge) else ("max", limit.le)))
    default = None if field.default_factory else field.default
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if field.is_required() else default,
        annotation=Annotated[field.annotation, info],
    )


# -- what several commands have --------------------------------------------------------------------

Argument = Annotated[T, typer.Argument()]
Several = Annotated[list[str], Field(default_factory=list)]
Settings = Annotated[
    list[str],
    typer.Argument(metavar="[KEY=VALUE]..."),
    Field(
        default_factory=list,
        description="Settings by their dotted keys in a run, such as env_config.KEY; values are "
        "YAML.",
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(metavar="N[-M]"),
    Field(default=None, description="Only training step N, or from N to M."),
]
AsJson = Annotated[bool, typer.Option("--json"), Field(default=False, description="Print JSON.")]
Trust = Annotated[
    bool,
    Field(
        default=False,
        description="Use the files, servers and links that a directory names outside of itself; of "
        "a suite also code.",
    ),
]


def step_range(steps: str | None) -> tuple[int, int] | None:
    """The first and the last step of --steps."""
    if steps is None:
        return None
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", steps)
    if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
        raise ConfigError(f"--steps must be N or N-M with N up to M, not {steps!r}")
    return int(match[1]), int(match[2] or match[1])


def given_settings(
    arguments: Sequence[str], sections: Collection[str] = RunConfig.model_fields
) -> dict[str, Any]:
    """`KEY=VALUE` arguments by their dotted keys. Raises ConfigError for a key that is no setting
    of a run, or in none of the `sections` that have an effect in this command."""
    given = parse_overrides(arguments)
    for key in given:
        head = key.partition(".")[0]
        if head not in RunConfig.model_fields:
            if difflib.get_close_matches(head, RunConfig.model_fields):
                raise ConfigError(unknown_key(head, RunConfig.model_fields))
            raise ConfigError(
                f"unknown key {key!r}; a setting of the environment is env_config.{key}"
            )
        if not {head, key} & set(sections):
            raise ConfigError(f"{key} has no effect here; settings are {', '.join(sections)}")
    return given


def env_config_of(arguments: Sequence[str]) -> dict[str, Any]:
    """The `env_config` of a command that has no other settings."""
    settings: dict[str, Any] = merge({}, given_settings(arguments, ["env_config"]))
    return settings.get("env_config") or {}
