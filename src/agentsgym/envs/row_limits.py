"""How much a dataset row may ask for: one row must not be able to hang a training or to fill the
memory.

What the program itself makes has no such bounds: an environment object that is handed over plays
whatever its configuration says.
"""

from collections.abc import Mapping
from typing import Any

from agentsgym.envs.config import ConfigError

MOST_ACTIONS = 100_000
"""Of a trial: steps of an episode times episodes."""
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
_HAND_OVER = "; hand the environment object over with envs=[env] where it is meant"


def check_limits(env_name: str, config: Mapping[str, Any]) -> None:
    """Raise ConfigError where the configuration of a row asks for too much."""
    for name, most in MOST.items():
        value = config.get(name)
        if isinstance(value, int | float) and value > most:
            _refuse(env_name, f"env_config[{name!r}] of a row must be at most {most}, got {value}")
    actions = config["max_steps_per_episode"] * config["episodes_per_trial"]
    if actions > MOST_ACTIONS:
        _refuse(env_name, f"a row may ask for {MOST_ACTIONS} actions in a trial, not {actions}")


def _refuse(env_name: str, problem: str) -> None:
    raise ConfigError(f"{env_name}: {problem}{_HAND_OVER}")
