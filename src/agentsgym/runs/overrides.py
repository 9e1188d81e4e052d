"""`KEY=VALUE` arguments: dotted keys, YAML values."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from agentsgym.envs import ConfigError
from agentsgym.runs.model_config import changed

_MOST_KEYS = 10_000
# Sections that a plain string may stand for, and the key that it is.
_MAIN_KEYS = {"engine": "name"}
# YAML 1.1 reads 1e-4 as text, because it requires a point and a sign; users mean the number.
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")


def parse_overrides(arguments: Iterable[str]) -> dict[str, Any]:
    """Dotted keys and their values. Raises ConfigError for an argument without `=`."""
    return dict(map(parse_override, arguments))


def parse_override(argument: str) -> tuple[str, Any]:
    """`train.learning_rate=1e-4` as ("train.learning_rate", 0.0001)."""
    key, equals, text = argument.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key):
        raise ConfigError(f"{argument!r} is not KEY=VALUE (for instance seed=1)")
    return key, parse_value(key, text)


def parse_value(key: str, text: str) -> Any:
    """A value as YAML reads it, numbers such as 1e-4 included."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - it is a SafeLoader
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"the value of {key} is not YAML: {text!r}") from None
    except RecursionError:
        raise ConfigError(f"the value of {key} is nested too deeply") from None


def merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with each dotted key set; missing mappings on the way are created.

    Where a string stands for a section (`model`), it is the section's main key: `model.lora.r=8`
    keeps it, and `model=PATH` keeps the section's other keys that do not belong to the old path.
    """
    merged = dict(base)
    for key, value in overrides.items():
        head, _, rest = key.partition(".")
        if head == "model":
            merged[head] = _model_with(merged.get(head), rest, value)
        else:
            merged = _merge(merged, {key: value})
    return merged


def _model_with(before: Any, rest: str, value: Any) -> Any:
    if not rest:
        return changed(before, value)
    section = {"path": before} if isinstance(before, str) else before
    return _merge({"model": section}, {f"model.{rest}": value})["model"]


def _merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in overrides.items():
        head, _, rest = key.partition(".")
        if not rest:
            merged[head] = value
            continue
        inner = merged.get(head) or {}
        if isinstance(inner, str) and head in _MAIN_KEYS:
            inner = {_MAIN_KEYS[head]: inner}
        if not isinstance(inner, Mapping):
            raise ConfigError(f"{key}: {head} is {inner!r}, which has no keys")
        merged[head] = _merge(inner, {rest: value})
    return merged


def load_yaml(text: str | bytes, source: str) -> dict[str, Any]:
    """A YAML mapping in which 1e-4 is a number; bytes are UTF-8, or UTF-16 with a byte order mark.

    Raises ConfigError with the name `source`.
    """
    try:
        data = yaml.load(text, _Loader)  # noqa: S506 - it is a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{source} must hold a mapping of keys, got {type(data).__name__}")
    return data


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads floats without a point, and limits the size of `<<` merges:
    mappings that merge each other several times grow exponentially."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge the mappings named by `<<`."""
        super().flatten_mapping(node)
        if len(node.value) > _MOST_KEYS:
            raise yaml.YAMLError(f"a mapping has more than {_MOST_KEYS} keys")


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
