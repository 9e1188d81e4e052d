"""Limits on the requests of a dataset row: no row may hang a training or fill the memory.

The program's own objects have no such limits: an environment object passed by the caller plays with
any configuration.
"""

from collections.abc import Mapping
from typing import Any

from agentsgym.types.errors import ConfigError

MOST_ACTIONS = 100_000
"""Limit for one trial: steps of an episode times episodes."""
MOST: Mapping[str, float] = {
    "workers": 256,
    "worker_timeout": 3600,
    "grader_timeout": 600,
    "reflection_tokens": 100_000,
    "rooms": 30,
    "objects": 100,
    "quest_length": 30,
    "ingredients": 20,
    "level": 300,
}
_HAND_OVER = "; if this is intended, pass the environment object with envs=[env]"


def check_limits(env_name: str, config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a row's configuration exceeds a limit."""
    for name, most in MOST.items():
        value = config.get(name)
        if isinstance(value, int | float) and value > most:
            _refuse(env_name, f"env_config[{name!r}] of a row must be at most {most}, got {value}")
    actions = config["max_steps_per_episode"] * config["episodes_per_trial"]
    if actions > MOST_ACTIONS:
        _refuse(
            env_name, f"a row may request at most {MOST_ACTIONS} actions in a trial, got {actions}"
        )


def _refuse(env_name: str, problem: str) -> None:
    raise ConfigError(f"{env_name}: {problem}{_HAND_OVER}")
