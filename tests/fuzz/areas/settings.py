"""Settings of the trainer, as a run file gives them."""

import dataclasses
import math

from hypothesis import strategies as st

from agentsgym.envs import ConfigError
from agentsgym.runs import parse_config
from agentsgym.runs.from_config import train_settings
from fuzz.oracle import Area, refused_with
from fuzz.values import odd_values

SANE = {"max_steps": 4, "per_device_train_batch_size": 8, "num_generations": 8, "use_cpu": True}


def _fields() -> list[str]:
    from agentsgym.training import GRPOEnvConfig

    # Those that start something outside: a download, a hub, a distributed set-up.
    left_out = {"output_dir", "seed", "deepspeed", "fsdp", "fsdp_config", "push_to_hub"}
    names = [field.name for field in dataclasses.fields(GRPOEnvConfig) if field.init]
    return [name for name in names if name not in left_out]


def check(given: dict) -> bool:
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


AREA = Area("settings", st.deferred(_settings), check)
