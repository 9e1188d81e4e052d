"""The keys of `warm_start` in a run whose model is pretrained."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError
from agentsgym.runs.config import RunConfig, check_keys
from agentsgym.runs.endpoint import CHAT, parse_endpoint
from agentsgym.runs.engine_config import EngineConfig
from agentsgym.runs.model_config import TINY

if TYPE_CHECKING:
    from agentsgym.training.warm_start.supervised import SupervisedConfig

SCRIPTED = ("teacher", "optimal", "random")
ROLLOUTS = "rollouts"
EXPORT = "export"
ENGINE = "warm_start.engine"
SOURCES = (*SCRIPTED, ROLLOUTS, EXPORT, CHAT)
# Keys that belong to one source.
_ONLY = {
    "run": ROLLOUTS,
    "data": EXPORT,
    "engine": CHAT,
    "temperature": CHAT,
    "max_answer_tokens": CHAT,
}
ENDPOINT_KEYS = frozenset(key for key, source in _ONLY.items() if source == CHAT)
"""The keys that only a chat endpoint has."""


@dataclass(frozen=True, slots=True)
class GamesConfig:
    """The games of a warm start.

    Args:
        source: who plays them: the environment's "teacher" or "optimal" agent, a "random" player
            of its admissible actions, or the model behind a "chat" endpoint; "rollouts" are the
            best games of each group of a finished run, "export" the conversations that
            `agentsgym export --to messages` wrote.
        games: number of games to imitate; of "rollouts" and "export" at most, those with most
            reward.
        best_of: games played on each drawn task, of which the one with the highest reward is
            imitated.
        min_reward: games with less reward are not imitated; None: all are.
        probe_tasks: training tasks that the model plays before and after, a group of games each,
            to measure its share of malformed actions; 0: none.
        run: the directory of the run with the rollouts.
        data: the folder or file of the export.
        engine: the chat endpoint: `urls`, `served_model`, `key_env`, `capacity`.
        temperature: of the endpoint's answers.
        max_answer_tokens: limit on each of them.
    """

    source: str
    games: int = 256
    best_of: int = 1
    min_reward: float | None = None
    probe_tasks: int = 8
    run: str | None = None
    data: str | None = None
    engine: EngineConfig | None = None
    temperature: float = 1.0
    max_answer_tokens: int = 512

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {self.source!r}")
        if self.source == ROLLOUTS and not isinstance(self.run, str):
            raise ValueError("source 'rollouts' needs run, the directory of a finished run")
        if self.source == EXPORT and not isinstance(self.data, str):
            raise ValueError("source 'export' needs data, the folder or file of an export")
        if self.source in (ROLLOUTS, EXPORT) and self.best_of != 1:
            raise ValueError(
                f"source {self.source!r} takes games that were played; leave best_of out"
            )
        if self.source == CHAT and self.engine is None:
            raise ValueError("source 'chat' needs engine, with urls and served_model")
        _check_number("temperature", self.temperature)
        if self.temperature < 0:
            raise ValueError(f"temperature must be at least 0, got {self.temperature}")
        least = {"games": 1, "best_of": 1, "probe_tasks": 0, "max_answer_tokens": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if type(value) is not int or value < low:
                raise ValueError(f"{name} must be a whole number from {low}, got {value!r}")
        if self.min_reward is not None:
            _check_number("min_reward", self.min_reward)


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
    for key, source in _ONLY.items():
        if given.get(key) is not None and given["source"] != source:
            raise ConfigError(f"warm_start.{key} is only for source {source!r}; leave it out")
    games = {key: value for key, value in given.items() if key in own}
    if games.get("engine") is not None:
        games["engine"] = parse_endpoint(games["engine"], ENGINE)
    try:
        return WarmStartSettings(
            GamesConfig(**games),
            SupervisedConfig(**{key: value for key, value in given.items() if key in training}),
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"warm_start: {error}") from error


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {value!r}")


def _names(kind: Any) -> set[str]:
    return {entry.name for entry in dataclasses.fields(kind)}
