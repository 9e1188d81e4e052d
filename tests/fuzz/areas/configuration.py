"""Settings of the trainer, run files, and `env_config`."""

import dataclasses
import math
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from agentsgym import make
from agentsgym.envs import ConfigError, UnknownEnvironment
from agentsgym.envs.extras import MissingExtra
from agentsgym.runs import load_config, parse_config
from agentsgym.runs.from_config import train_settings
from fuzz.oracle import Area, refused_with
from fuzz.values import odd_values

# -- settings of the trainer -----------------------------------------------------------------------

SANE = {"max_steps": 4, "per_device_train_batch_size": 8, "num_generations": 8, "use_cpu": True}


def _fields() -> list[str]:
    from agentsgym.training import GRPOEnvConfig

    # Those that start something outside: a download, a hub, a distributed set-up.
    left_out = {"output_dir", "seed", "deepspeed", "fsdp", "fsdp_config", "push_to_hub"}
    names = [field.name for field in dataclasses.fields(GRPOEnvConfig) if field.init]
    return [name for name in names if name not in left_out]


def check_settings(given: dict) -> bool:
    """A configuration with these settings, or a sentence; nothing in it is NaN or infinite."""
    try:
        made = train_settings(parse_config({"env": "TwentyQuestions", "train": SANE | given}))
    except ConfigError as error:
        return refused_with(error)
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        assert not (isinstance(value, float) and not math.isfinite(value)), field.name
    return True


def _settings() -> st.SearchStrategy[dict]:
    values = st.integers(1, 8) | st.floats(0.001, 1) | st.booleans() | odd_values(1)
    return st.dictionaries(st.sampled_from(_fields()), values, max_size=2)


SETTINGS_AREA = Area("settings", st.deferred(_settings), check_settings)

# -- run files: bytes that claim to be YAML --------------------------------------------------------

PRESET = (files("agentsgym") / "presets" / "quickstart.yaml").read_bytes()
KEYS = st.sampled_from(
    ["name", "seed", "env", "env_config", "model", "warm_start", "train", "eval",
     "max_seconds", "threads", "output_dir", "description", "eval.rollouts",
     "nonsense"]
)  # fmt: skip


@st.composite
def run_files(draw: Any) -> bytes:
    """The preset with bytes changed, or with keys of any value."""
    if draw(st.booleans()):
        data = bytearray(PRESET)
        for _ in range(draw(st.integers(0, 5))):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        cut = draw(st.integers(0, len(data)) | st.just(len(data)))
        encoding = draw(st.sampled_from(["utf-8", "utf-16", "latin-1", "utf-32"]))
        text = bytes(data[:cut]).decode("latin-1")
        return text.encode(encoding, errors="replace")
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([b"[" * 3000, b"{a: " * 3000, b"&a [*a]", b"!!python/object:x.y {}", b"? " * 500, b"\xff\xfe", b"a: b: c"]))  # fmt: skip  # noqa: E501
    given = {"env": "TwentyQuestions", "train": {"max_steps": 3}}
    given |= draw(st.dictionaries(KEYS, odd_values(), max_size=3))
    dumped: str = yaml.safe_dump(given, allow_unicode=True)
    return dumped.encode("utf-8", errors="surrogatepass")


def check_file(content: bytes) -> bool:
    """A run's configuration, or a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.yaml"
        path.write_bytes(content)
        try:
            train_settings(load_config(str(path), {}))
        except (ConfigError, UnknownEnvironment) as error:
            return refused_with(error)
    return True


FILES_AREA = Area("run files", run_files(), check_file)

# -- environments that need nothing but this package -----------------------------------------------

NAMES = ("TwentyQuestions", "Bandit", "Mastermind", "ClassicalReasoning", "ALFWorld", "TextWorld")
VALUES = st.integers(0, 9) | st.booleans() | odd_values(1)


def _keys() -> list[tuple[str, str]]:
    from agentsgym.envs.registry import find

    return [
        (name, key) for name in NAMES for key in (*find(name).Settings.model_fields, "nonsense")
    ]


@st.composite
def configs(draw):  # type: ignore[no-untyped-def]
    """(environment, configuration)."""
    name, key = draw(st.sampled_from(_keys()))
    config = {key: draw(VALUES)}
    if draw(st.booleans()):
        other = draw(st.sampled_from([k for n, k in _keys() if n == name]))
        config[other] = draw(VALUES)
    return name, config


def check_config(case: tuple[str, dict]) -> bool:
    """An environment, or a sentence that names the key."""
    name, config = case
    try:
        make(name, None, config)
    except (ConfigError, MissingExtra) as error:
        return refused_with(error)
    return True


ENVIRONMENTS_AREA = Area("environment configurations", st.deferred(configs), check_config)
