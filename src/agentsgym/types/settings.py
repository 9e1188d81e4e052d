"""Settings: typed sections that are read once, and one form for their errors.

A package declares its settings as a `Section` whose fields carry their range, choices, default and
help; `read` checks values against it. Nothing is converted: a text is no number.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from agentsgym.types.names import ConfigError, unknown_key
from agentsgym.types.text import short_repr

T = TypeVar("T")

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_UNKNOWN = "unknown_key"


def _as_list(value: Any) -> Any:
    """A text alone is a list of one; no value is an empty list."""
    return [value] if isinstance(value, str) else [] if value is None else value


LARGEST_SEED = 2**32 - 1
"""NumPy accepts no larger seed."""
MOST = 10_000_000
"""The largest number of tasks, episodes, updates and the like."""

Text = Annotated[str, StringConstraints(min_length=1)]
Texts = Annotated[list[Text], BeforeValidator(_as_list)]
Count = Annotated[int, Field(ge=1, le=MOST)]
CountOrZero = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]


class Section(BaseModel):
    """A section of settings. An unknown key is refused with the most similar allowed ones."""

    model_config = STRICT
    main_key: ClassVar[str | None] = None
    """The key that a plain text in place of the section is."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        if cls.main_key and (values is None or isinstance(values, str)):
            return {} if values is None else {cls.main_key: values}
        if isinstance(values, Mapping):
            allowed = [field.alias or name for name, field in cls.model_fields.items()]
            for key in () if cls.model_config.get("extra") == "allow" else values:
                if key not in allowed:
                    raise PydanticCustomError(_UNKNOWN, "", {"key": str(key), "allowed": allowed})
        elif not isinstance(values, cls):
            raise PydanticCustomError("mapping", "must be a mapping")
        return values


def read(kind: type[T], values: object, prefix: str = "") -> T:
    """`values` as `kind`: a section, or any type that pydantic checks.

    Raises ConfigError with the key (after `prefix`, such as "engine."), the value, and what is
    allowed.
    """
    adapter: TypeAdapter[T] = _adapter(kind)
    try:
        return adapter.validate_python(values)
    except ValidationError as error:
        raise ConfigError(_sentence(error, prefix)) from None


_adapter: Any = cache(TypeAdapter)


def _sentence(error: ValidationError, prefix: str) -> str:
    """The first problem; an unknown key comes before what may follow from it."""
    problems = error.errors()
    first = next((each for each in problems if each["type"] == _UNKNOWN), problems[0])
    key = prefix + ".".join(str(part) for part in first["loc"] if not _is_branch(part))
    if first["type"] == _UNKNOWN:
        at = f"{key.rstrip('.')}." if key else ""
        return unknown_key(first["ctx"]["key"], first["ctx"]["allowed"], at)
    key = key.rstrip(".") or "the configuration"
    if first["type"] == "missing":
        return f"{key} is missing"
    if first["type"] == "value_error":
        problem = first["ctx"]["error"]
        return str(problem) if isinstance(problem, ConfigError) else f"{key}: {problem}"
    return f"{key} {_requirement(first)}, got {short_repr(first['input'])}"


def _is_branch(part: int | str) -> bool:
    """Whether a part of a location is a type of a union, as pydantic names it."""
    return isinstance(part, str) and (part in ("int", "float", "str", "bool") or "[" in part)


def _requirement(problem: ErrorDetails) -> str:
    """What is allowed, in pydantic's words: "must be greater than 0"."""
    text = re.sub(r"^\w+ should", "must", problem["msg"]).replace("be a valid", "be a", 1)
    return text.replace("be a integer", "be an integer", 1)
