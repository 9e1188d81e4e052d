"""The section `agentsgym:` of an Axolotl configuration."""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from agentsgym.envs import ConfigError, make
from agentsgym.evaluation import default_cluster, select
from agentsgym.runs.from_config import datasets_of
from agentsgym.training import GRPOEnvConfig
from agentsgym.training.settings import OWN_TYPES, read_own
from agentsgym.types import Trust, with_modules_of
from agentsgym.types.names import unknown_key
from agentsgym.types.settings import Count, Section, read

if TYPE_CHECKING:
    from agentsgym.integrations.trl import RolloutFunc


class AgentsgymArgs(BaseModel):
    """The section as it was written; the plugin checks its keys when it is registered."""

    agentsgym: dict[str, Any]


Trainer = Literal["agentsgym", "axolotl", "action_mask"]
# Settings of ours that Axolotl's own trainer has a use for.
_OF_ROLLOUT_FUNC = {"max_action_tokens", "max_rollout_tokens", "stop_strings", "engine", "trust"}
_ALL = {each.name for each in dataclasses.fields(GRPOEnvConfig) if each.init}
_OF_TRAINER = {
    "agentsgym": _ALL,
    "axolotl": _OF_ROLLOUT_FUNC,
    "action_mask": _OF_ROLLOUT_FUNC | {"advantage_estimator", "advantage_options"},
}
OWN_SETTINGS = frozenset(OWN_TYPES)
"""The fields of `GRPOEnvConfig` that TRL does not have."""


class AxolotlSection(Section):
    """What the section says; `settings` are fields of `GRPOEnvConfig`."""

    env: str = Field(description="A registered name, or the dotted path of a class.")
    env_config: dict[str, Any] | None = Field(default=None, description="Its settings.")
    eval_tasks: Count | None = Field(default=None, description="Evaluation tasks; None: all.")
    trainer: Trainer = Field(default="agentsgym", description="Who trains.")
    signal_check: bool = Field(
        default=True, description="Stop after the first generation if it is hopeless."
    )
    settings: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def parse(cls, data: Any, elsewhere: Mapping[str, str]) -> "AxolotlSection":
        """Read the section. `elsewhere` names the settings for which Axolotl has a key of its own,
        and that key.

        Raises ConfigError with the key that is unknown, stands in the wrong place, or has a value
        that is not allowed.
        """
        if not isinstance(data, Mapping):
            raise ConfigError(f"the section agentsgym must be a mapping, got {data!r}")
        here = cls.model_fields.keys() - {"settings"}
        names = OWN_SETTINGS | (_ALL - elsewhere.keys())
        for key in sorted(data.keys() - names - here):
            if key in elsewhere:
                raise ConfigError(f"agentsgym.{key} belongs to Axolotl: set {elsewhere[key]}")
            raise ConfigError(unknown_key(str(key), names | here, "agentsgym."))
        section = read(cls, {key: data[key] for key in data if key in here}, "agentsgym.")
        settings = {key: value for key, value in data.items() if key in names}
        for key in sorted(settings.keys() - _OF_TRAINER[section.trainer]):
            raise ConfigError(
                f"agentsgym.{key} has an effect only with agentsgym.trainer: agentsgym, not "
                f"{section.trainer}"
            )
        settings |= read_own(settings, "agentsgym.")
        return section.model_copy(update={"settings": settings})

    @property
    def trust(self) -> Trust:
        """What the tasks' rows may name: what the section trusts, and its environment."""
        return with_modules_of(self.settings.get("trust") or False, self.env)

    @cached_property
    def rollouts(self) -> "RolloutFunc":
        """The `RolloutFunc` of a trainer of Axolotl's."""
        from agentsgym.integrations.trl import RolloutFunc

        names = self.settings.keys() & _OF_ROLLOUT_FUNC
        settings = {name: self.settings[name] for name in names}
        return RolloutFunc(**{**settings, "trust": self.trust})

    def datasets(self) -> tuple[Any, Any]:
        """Training and evaluation tasks, as rows that name the environment; for a trainer of
        Axolotl's as prompts that stand for such rows. Raises SeveralRows for trials that such a
        trainer can't train."""
        env = make(self.env, None, self.env_config or {}, trust=self.trust)
        train, held_out = datasets_of(env)
        if self.eval_tasks is not None:
            rows = select(list(held_out), self.eval_tasks, seed=0, cluster=default_cluster)
            held_out = held_out.select(rows)
        if self.trainer == "agentsgym":
            return train, held_out
        from agentsgym.integrations.trl import prompt_dataset
        from agentsgym.integrations.trl.rollouts import check_one_row

        check_one_row(env)
        return prompt_dataset(train), prompt_dataset(held_out)
