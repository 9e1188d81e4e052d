"""The plugin: reads the section `agentsgym:`, loads the tasks, and names the trainer."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from axolotl.common.datasets import TrainDatasetMeta
from axolotl.integrations.base import BasePlugin, PluginManager
from axolotl.utils.schemas.config import AxolotlInputConfig
from axolotl.utils.schemas.trl import TRLConfig
from pydantic import BaseModel, Field

from agentsgym.envs import ConfigError, make
from agentsgym.evaluation import select
from agentsgym.runs.builtin import model_place
from agentsgym.runs.from_config import run_tasks
from agentsgym.runs.settings import DataSettings
from agentsgym.training import GRPOEnvConfig
from agentsgym.training.settings import OwnSettings
from agentsgym.types import Trust, with_modules_of
from agentsgym.types.names import unknown_key
from agentsgym.types.settings import Count, Section, read

_HOME = "agentsgym.integrations.axolotl"
# Axolotl wants an entry of `datasets`, which nobody reads: the plugin loads the tasks.
_OURS: dict[str, Any] = {
    "datasets": [{"path": "agentsgym"}],
    "trainer_cls": f"{_HOME}.trainer.AxolotlEnvTrainer",
}
"""What the plugin writes into the configuration."""
_BUILTIN = "builtin:"
# Keys of Axolotl that would be ignored or train something else, and what to do instead.
_REFUSED = {
    "datasets": "tasks come from agentsgym.env",
    "test_datasets": "evaluation tasks come from agentsgym.env",
    "pretraining_dataset": "tasks come from agentsgym.env",
    "val_set_size": "evaluation tasks come from agentsgym.env; see agentsgym.eval_tasks",
    "trainer_cls": "the plugin chooses the trainer",
    "batch_flattening": "rows are packed anyway; see agentsgym.max_tokens_per_forward",
    "trl.reward_funcs": "rewards come from the environment",
    "trl.reward_processing_classes": "rewards come from the environment",
    "trl.rollout_func": "the environment plays the rollouts",
    "trl.async_prefetch": "set agentsgym.max_staleness",
    "trl.use_data_producer": "set agentsgym.max_staleness",
}
# What TRL 1.9 has otherwise, where nobody sets it.
_DEFAULTS = {"router_aux_loss_coef": 0.0, "use_bias_correction_kl": True}
# Settings of Axolotl's section `trl` that it does not hand to the trainer, and one of `_DEFAULTS`.
_PASSED = ("chat_template_kwargs", "generation_kwargs", "use_bias_correction_kl")


class AgentsgymArgs(BaseModel):
    """The section as it was written; the plugin checks its keys when it is registered."""

    agentsgym: dict[str, Any]


_ALL = {each.name for each in dataclasses.fields(GRPOEnvConfig) if each.init}
OWN_SETTINGS = frozenset(OwnSettings.model_fields)
"""The fields of `GRPOEnvConfig` that TRL does not have."""


class AxolotlSection(Section):
    """What the section says; `settings` are fields of `GRPOEnvConfig`."""

    env: str = Field(description="A registered name, or the dotted path of a class.")
    env_config: dict[str, Any] | None = Field(default=None, description="Its settings.")
    eval_tasks: Count | None = Field(default=None, description="Evaluation tasks; None: all.")
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
        own = {key: value for key, value in settings.items() if key in OWN_SETTINGS}
        settings |= read(OwnSettings, own, "agentsgym.").given
        return section.model_copy(update={"settings": settings})

    @property
    def trust(self) -> Trust:
        """What the tasks' rows may name: what the section trusts, and its environment."""
        return with_modules_of(self.settings.get("trust") or False, self.env)

    def datasets(self) -> tuple[Any, Any]:
        """Training and evaluation tasks, as rows that name the environment."""
        env = make(self.env, None, self.env_config or {}, trust=self.trust)
        files = DataSettings()
        train, held_out = run_tasks(env, files, "train"), run_tasks(env, files, "eval")
        if self.eval_tasks is not None:
            rows = select(list(held_out), self.eval_tasks)
            held_out = held_out.select(rows)
        return train, held_out


class Plugin(BasePlugin):  # type: ignore[misc]
    """Trains in an environment of ours, as the section `agentsgym:` says."""

    section: AxolotlSection

    def get_input_args(self) -> str:
        """Where Axolotl finds the schema of the section."""
        return f"{_HOME}.plugin.AgentsgymArgs"

    def register(self, cfg: Any) -> None:
        """Check the configuration as it was written, and add what Axolotl wants.

        Raises ConfigError with the key that is unknown or refused.
        """
        self.section = AxolotlSection.parse(cfg.get("agentsgym"), _keys_of_axolotl())
        _refuse(cfg)
        method = cfg.get("rl") or "grpo"
        if getattr(method, "value", method) != "grpo":
            raise ConfigError(f"rl: {method} has no environments; set rl: grpo")
        if (cfg.get("context_parallel_size") or 1) > 1:
            raise ConfigError("context_parallel_size above 1 is not supported with environments")
        cfg["rl"] = "grpo"
        cfg["trl"] = dict(cfg.get("trl") or {})
        cfg |= copy.deepcopy(_OURS)  # Axolotl adds keys to the entry of `datasets`
        cfg["base_model"] = _folder(cfg.get("base_model"))

    def load_datasets(self, cfg: Any, preprocess: bool = False) -> Any:
        """The environment's tasks."""
        train, held_out = self.section.datasets()
        return TrainDatasetMeta(train_dataset=train, eval_dataset=held_out)

    def get_training_args(self, cfg: Any) -> dict[str, Any]:
        """Arguments in the place of Axolotl's. With one rollout per evaluation task, no batch of
        an evaluation has to be divisible; the trainer has `eval_rollouts`."""
        written = cfg.trl or {}
        passed = {name: written[name] for name in _PASSED if written.get(name) is not None}
        return {"num_generations_eval": 1, **_DEFAULTS, **passed}


def section_of_this_run() -> AxolotlSection:
    """The section that the registered plugin has read. Raises ConfigError if there is none."""
    for plugin in PluginManager.get_instance().plugins.values():
        if isinstance(plugin, Plugin):
            return plugin.section
    raise ConfigError(f"no section agentsgym was read; add plugins: [{_HOME}.Plugin]")


def _keys_of_axolotl() -> dict[str, str]:
    """Settings and the keys of Axolotl that set them."""
    top = {name: name for name in AxolotlInputConfig.model_fields}
    return top | {name: f"trl.{name}" for name in TRLConfig.model_fields}


def _refuse(cfg: Mapping[str, Any]) -> None:
    for key, why in _REFUSED.items():
        place, _, name = key.rpartition(".")
        value = ((cfg.get(place) or {}) if place else cfg).get(name)
        if key == "datasets" and isinstance(value, list):  # Axolotl adds keys to an entry
            value = [{"path": entry.get("path")} for entry in value]
        if value and value != _OURS.get(key):
            raise ConfigError(f"{key} has no use with the agentsgym plugin: {why}")


def _folder(base_model: Any) -> Any:
    """The directory of a model that ships with agentsgym; other names as they are."""
    return str(model_place(str(base_model))) if str(base_model).startswith(_BUILTIN) else base_model
