"""The keys of `warm_start` in a run whose model is pretrained."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError
from agentsgym.runs.config import RunConfig, check_keys
from agentsgym.runs.model_config import TINY

if TYPE_CHECKING:
    from agentsgym.training.warm_start.supervised import SupervisedConfig

SOURCES = ("teacher", "optimal", "random")


@dataclass(frozen=True, slots=True)
class GamesConfig:
    """The games of a warm start.

    Args:
        source: who plays them: the environment's "teacher" or "optimal" agent, or a "random"
            player of its admissible actions.
        games: number of games to imitate.
        best_of: games played on each drawn task, of which the one with the highest reward is
            imitated.
        min_reward: games with less reward are not imitated; None: all are.
        probe_tasks: training tasks that the model plays before and after, a group of games each,
            to measure its share of malformed actions; 0: none.
    """

    source: str
    games: int = 256
    best_of: int = 1
    min_reward: float | None = None
    probe_tasks: int = 8

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {self.source!r}")
        for name, least in (("games", 1), ("best_of", 1), ("probe_tasks", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} must be a whole number from {least}, got {value!r}")
        reward = self.min_reward
        if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
            raise ValueError(f"min_reward must be a number, got {reward!r}")


@dataclass(frozen=True, slots=True)
class WarmStartSettings:
    """All settings of a warm start: its games, and the training on them."""

    games: GamesConfig
    training: "SupervisedConfig"


def warm_starts(config: RunConfig) -> bool:
    """Whether a run begins with a warm start of a pretrained model."""
    return config.model.path != TINY and config.warm_start.get("source") is not None


def settings_of(given: Mapping[str, Any]) -> WarmStartSettings:
    """The keys of a run's `warm_start`. Raises ConfigError with an unknown key or a bad value."""
    from agentsgym.training.warm_start.supervised import SupervisedConfig

    own, training = _names(GamesConfig), _names(SupervisedConfig)
    check_keys(given, own | training, "warm_start.")
    try:
        return WarmStartSettings(
            GamesConfig(**{key: value for key, value in given.items() if key in own}),
            SupervisedConfig(**{key: value for key, value in given.items() if key in training}),
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"warm_start: {error}") from error


def _names(kind: Any) -> set[str]:
    return {entry.name for entry in dataclasses.fields(kind)}
