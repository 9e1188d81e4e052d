"""Where a run's settings come from: a preset, a YAML file, an earlier run, `KEY=VALUE`."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml

from agentsgym.runs.files import DamagedFile, RunDirectory, read_summary
from agentsgym.runs.files.directory import read_bytes
from agentsgym.runs.settings import RunConfig, parse_config
from agentsgym.types.names import ConfigError
from agentsgym.types.settings import Section

# YAML 1.1 reads 1e-4 as text, because it requires a point and a sign; users mean the number.
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")


def shipped_yaml(folder: str) -> dict[str, str]:
    """The texts of the YAML files in a folder of the package, by name."""
    texts = {
        entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8")
        for entry in (files("agentsgym") / folder).iterdir()
        if entry.name.endswith(".yaml")
    }
    return dict(sorted(texts.items()))


def presets() -> dict[str, str]:
    """Name and YAML text of every preset in the package."""
    return shipped_yaml("presets")


def load_config(source: str, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration of a preset or YAML file, by default with its name, with dotted overrides.
    Raises ConfigError for an unknown source, key or value."""
    data = {"name": Path(source).stem, **named_yaml(source, "preset")}
    return parse_config(merge(data, overrides or {}))


def load_run(run_dir: Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration of an earlier run, to continue it in the same directory. Raises ConfigError
    if there is none, OtherFormat if a newer agentsgym wrote the run."""
    directory = RunDirectory(run_dir)
    if not directory.is_run():
        raise ConfigError(f"{run_dir} holds no run to resume (it has no config.yaml)")
    with suppress(FileNotFoundError, DamagedFile):  # resuming mends these
        read_summary(directory.summary)
    data = load_yaml(read_bytes(directory.config), str(directory.config))
    data = {**data, "output_dir": str(run_dir)}
    return parse_config(merge(data, overrides or {}))


def named_yaml(source: str, kind: Literal["preset", "suite"]) -> dict[str, Any]:
    """The content of a preset or suite of the package, or of a YAML file. Raises ConfigError."""
    known = shipped_yaml(f"{kind}s")
    if source in known:
        return load_yaml(known[source], f"{kind} {source!r}")
    path = Path(source)
    if path.is_file():
        return load_yaml(path.read_bytes(), source)
    message = f"{source!r} is neither a file nor a {kind}; {kind}s: {', '.join(known)}"
    if kind == "preset" and path.suffix not in (".yaml", ".yml"):
        message += "; to train on an environment, name it in a file (env: NAME, model: tiny)"
    raise ConfigError(message)


def parse_overrides(arguments: Iterable[str]) -> dict[str, Any]:
    """Dotted keys and their values. Raises ConfigError for an argument without `=`."""
    return dict(map(parse_override, arguments))


def parse_override(argument: str) -> tuple[str, Any]:
    """`train.learning_rate=1e-4` as ("train.learning_rate", 0.0001)."""
    key, equals, text = argument.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key):
        raise ConfigError(f"{argument!r} is not KEY=VALUE (for instance seed=1)")
    return key, _parsed(text, f"the value of {key}")


def merge(
    base: Mapping[str, Any],
    overrides: Mapping[str, Any],
    section: type[Section] | None = RunConfig,
) -> dict[str, Any]:
    """`base`, values of a `section`, with each dotted key set; missing mappings are created. A text
    in the place of a section (`model`) is the section's main key: `model.lora.r=8` keeps it.
    `model=PATH` keeps the section's other keys but the revision of the former path."""
    merged = dict(base)
    for key, value in overrides.items():
        head, _, rest = key.partition(".")
        before = merged.get(head)
        inner = _inner(section, head)
        if isinstance(before, str) and inner is not None and inner.main_key:
            before = {inner.main_key: before}
        if rest:
            if not isinstance(before or {}, Mapping):
                raise ConfigError(f"{key}: {head} is {before!r}, which has no keys")
            merged[head] = merge(before or {}, {rest: value}, inner)
        elif head == "model" and isinstance(value, str) and isinstance(before, Mapping):
            merged[head] = {**before, "path": value, "revision": None}
        else:
            merged[head] = value
    return merged


def _inner(section: type[Section] | None, name: str) -> type[Section] | None:
    """The section `name` of a section, if it is one."""
    field = None if section is None else section.model_fields.get(name)
    kind = None if field is None else field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def flat(value: Any, key: str = "") -> dict[str, Any]:
    """Nested settings by dotted key."""
    if not isinstance(value, Mapping):
        return {key: value}
    parts = (flat(part, f"{key}.{name}".lstrip(".")) for name, part in value.items())
    return {name: one for part in parts for name, one in part.items()}


def load_yaml(text: str | bytes, source: str) -> dict[str, Any]:
    """A YAML mapping in which 1e-4 is a number; bytes are UTF-8, or UTF-16 with a byte order mark.
    Raises ConfigError with the name `source`."""
    data = _parsed(text, source)
    if not isinstance(data, dict):
        raise ConfigError(f"{source} must hold a mapping of keys, got {type(data).__name__}")
    return data


def _parsed(text: str | bytes, source: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - it is a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply") from None


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads floats without a point, and as booleans only true and false."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
for _letter in "yYnNoO":  # of yes, no, on, off: TRL has `eval_strategy: no`
    _Loader.yaml_implicit_resolvers[_letter] = [
        (tag, pattern)
        for tag, pattern in _Loader.yaml_implicit_resolvers[_letter]
        if tag != "tag:yaml.org,2002:bool"
    ]
