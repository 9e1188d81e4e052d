"""The section `agentsgym:` of an Axolotl configuration."""

import dataclasses
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from agentsgym.envs import ConfigError, MultistepEnv, make
from agentsgym.evaluation import default_cluster, select
from agentsgym.runs.from_config import datasets_of
from agentsgym.training import GRPOEnvConfig
from agentsgym.training.settings import OWN_TYPES, read_own
from agentsgym.types import Trust, with_modules_of
from agentsgym.types.errors import unknown_key


class AgentsgymArgs(BaseModel):
    """The section as it was written; the plugin checks its keys when it is registered."""

    agentsgym: dict[str, Any]


TRAINERS = ("agentsgym", "axolotl", "action_mask")
# Settings of ours that Axolotl's own trainer has a use for.
_OF_ROLLOUT_FUNC = {
    "max_action_tokens",
    "max_rollout_tokens",
    "stop_strings",
    "engine",
    "trust",
}
_OF_TRAINER = {
    "axolotl": _OF_ROLLOUT_FUNC,
    "action_mask": _OF_ROLLOUT_FUNC | {"advantage_estimator", "advantage_options"},
}
_ALL = {each.name for each in dataclasses.fields(GRPOEnvConfig) if each.init}
OWN_SETTINGS = frozenset(OWN_TYPES)
"""The fields of `GRPOEnvConfig` that TRL does not have."""


@dataclass(frozen=True)
class Section:
    """What the section says: the environment `env` with `env_config`, of whose evaluation tasks
    `eval_tasks` are played (None: all), who trains (`trainer`, one of `TRAINERS`), and `settings`,
    fields of `GRPOEnvConfig`."""

    env: str
    env_config: Mapping[str, Any] = field(default_factory=dict)
    eval_tasks: int | None = None
    trainer: str = "agentsgym"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Any, elsewhere: Mapping[str, str]) -> "Section":
        """Read the section. `elsewhere` names the settings for which Axolotl has a key of its own,
        and that key.

        Raises ConfigError with the key that is unknown, stands in the wrong place, or has a value
        that is not allowed.
        """
        if not isinstance(data, Mapping):
            raise ConfigError(f"the section agentsgym must be a mapping, got {data!r}")
        names = OWN_SETTINGS | (_ALL - elsewhere.keys())
        for key in sorted(data.keys() - names - _HERE & elsewhere.keys()):
            raise ConfigError(f"agentsgym.{key} belongs to Axolotl: set {elsewhere[key]}")
        for key in data.keys() - names - _HERE:
            raise ConfigError(unknown_key(str(key), names | _HERE, "agentsgym."))
        _check_values(data)
        here = {key: value for key, value in data.items() if key in _HERE and value is not None}
        settings = {key: value for key, value in data.items() if key in names}
        settings |= read_own(settings, "agentsgym.")
        found = cls(**here, settings=settings)
        _check_trainer(found.trainer, settings.keys())
        return found

    @property
    def trust(self) -> Trust:
        """What the tasks' rows may name: what the section trusts, and its environment."""
        return with_modules_of(self.settings.get("trust") or False, self.env)

    def make_env(self, tokenizer: Any = None) -> MultistepEnv:
        """The environment; without a tokenizer, for its tasks."""
        return make(self.env, tokenizer, dict(self.env_config), trust=self.trust)

    def datasets(self) -> tuple[Any, Any]:
        """Training and evaluation tasks, as rows that name the environment; for a trainer of
        Axolotl's as prompts that stand for such rows."""
        train, held_out = datasets_of(self.make_env())
        if self.eval_tasks is not None:
            rows = select(list(held_out), self.eval_tasks, seed=0, cluster=default_cluster)
            held_out = held_out.select(rows)
        if self.trainer == "agentsgym":
            return train, held_out
        from agentsgym.integrations.trl import prompt_dataset

        return prompt_dataset(train), prompt_dataset(held_out)


_HERE = {each.name for each in dataclasses.fields(Section)} - {"settings"}


def _check_values(data: Mapping[str, Any]) -> None:
    if not isinstance(data.get("env"), str):
        raise ConfigError("agentsgym.env must name an environment, such as Bandit")
    env_config, wanted = data.get("env_config"), data.get("eval_tasks")
    if not isinstance(env_config, Mapping | None):
        raise ConfigError(f"agentsgym.env_config must be a mapping, got {env_config!r}")
    if not (wanted is None or (type(wanted) is int and wanted > 0)):
        raise ConfigError(f"agentsgym.eval_tasks must be a number above 0, got {wanted!r}")


def _check_trainer(trainer: Any, keys: Set[str]) -> None:
    if trainer not in TRAINERS:
        raise ConfigError(f"agentsgym.trainer must be one of {', '.join(TRAINERS)}: {trainer!r}")
    for key in sorted(keys - _OF_TRAINER.get(trainer, _ALL)):
        raise ConfigError(
            f"agentsgym.{key} has an effect only with agentsgym.trainer: agentsgym, not {trainer}"
        )
