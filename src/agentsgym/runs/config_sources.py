"""The sources of a run's configuration: a preset, a YAML file, an earlier run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.runs.config import RunConfig, parse_config
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.files.summary import check_version
from agentsgym.runs.overrides import load_yaml, merge
from agentsgym.runs.shipped_yaml import shipped_yaml


def presets() -> dict[str, str]:
    """Name and YAML text of every preset in the package."""
    return shipped_yaml("presets")


def load_config(source: str, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration of a preset or YAML file with dotted overrides.

    `name` defaults to the preset's or file's name. Raises ConfigError for an unknown source, key or
    value.
    """
    data = {"name": Path(source).stem, **_read(source)}
    return parse_config(merge(data, overrides or {}))


def load_run(run_dir: Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration of an earlier run, to continue it in the same directory.

    Raises ConfigError if there is none, NewerFormat if a newer agentsgym wrote the run.
    """
    directory = RunDirectory(run_dir)
    if not directory.is_run():
        raise ConfigError(f"{run_dir} holds no run to resume (it has no config.yaml)")
    check_version(directory.summary)
    data = load_yaml(directory.config.read_bytes(), str(directory.config))
    data = {**data, "output_dir": str(run_dir)}
    return parse_config(merge(data, overrides or {}))


def _read(source: str) -> dict[str, Any]:
    known = presets()
    if source in known:
        return load_yaml(known[source], f"preset {source!r}")
    path = Path(source)
    if path.is_file():
        return load_yaml(path.read_bytes(), source)
    raise ConfigError(f"{source!r} is neither a file nor a preset; presets: {', '.join(known)}")
