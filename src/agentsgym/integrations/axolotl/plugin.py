"""The plugin: reads the section `agentsgym:`, loads the tasks, and chooses the trainer or the
`rollout_func` that Axolotl imports by its name."""

from collections.abc import Mapping, Sequence
from typing import Any

from axolotl.common.datasets import TrainDatasetMeta
from axolotl.integrations.base import BasePlugin, PluginManager
from axolotl.utils.schemas.config import AxolotlInputConfig
from axolotl.utils.schemas.trl import TRLConfig

from agentsgym.envs import ConfigError
from agentsgym.integrations.axolotl.section import AxolotlSection
from agentsgym.runs.models.builtin import model_place

_HOME = "agentsgym.integrations.axolotl"
# Axolotl wants an entry of `datasets`, which nobody reads: the plugin loads the tasks.
_NOT_READ = "agentsgym"
_OWN_ROLLOUTS = {
    "trl.rollout_func": f"{_HOME}.plugin.rollout_func",
    "trl.reward_funcs": ["agentsgym.integrations.trl.episode_reward"],
}
# What the plugin writes into the configuration, by agentsgym.trainer.
_TRAINERS: dict[str, dict[str, Any]] = {
    "agentsgym": {"trainer_cls": f"{_HOME}.trainer.AxolotlEnvTrainer"},
    "axolotl": _OWN_ROLLOUTS,
    "action_mask": {"trainer_cls": f"{_HOME}.action_mask.ActionMaskTrainer", **_OWN_ROLLOUTS},
}
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
# Settings that Axolotl's section `trl` has, but does not hand to the trainer.
_FORGOTTEN = ("chat_template_kwargs", "generation_kwargs")


class Plugin(BasePlugin):  # type: ignore[misc]
    """Trains in an environment of ours, as the section `agentsgym:` says."""

    section: AxolotlSection

    def get_input_args(self) -> str:
        """Where Axolotl finds the schema of the section."""
        return f"{_HOME}.section.AgentsgymArgs"

    def register(self, cfg: Any) -> None:
        """Check the configuration as it was written, and add what Axolotl wants.

        Raises ConfigError with the key that is unknown or refused.
        """
        self.section = AxolotlSection.parse(cfg.get("agentsgym"), _keys_of_axolotl())
        ours = {"datasets": [{"path": _NOT_READ}], **_TRAINERS[self.section.trainer]}
        _refuse(cfg, ours)
        method = cfg.get("rl") or "grpo"
        if getattr(method, "value", method) != "grpo":
            raise ConfigError(f"rl: {method} has no environments; set rl: grpo")
        if (cfg.get("context_parallel_size") or 1) > 1:
            raise ConfigError("context_parallel_size above 1 is not supported with environments")
        cfg["rl"] = "grpo"
        cfg["trl"] = dict(cfg.get("trl") or {})
        for key, value in ours.items():
            place, _, name = key.rpartition(".")
            (cfg[place] if place else cfg)[name] = value
        cfg["base_model"] = _folder(cfg.get("base_model"))

    def load_datasets(self, cfg: Any, preprocess: bool = False) -> Any:
        """The environment's tasks."""
        train, held_out = self.section.datasets()
        return TrainDatasetMeta(train_dataset=train, eval_dataset=held_out)

    def get_training_args(self, cfg: Any) -> dict[str, Any]:
        """Arguments in the place of Axolotl's. With one rollout per evaluation task, no batch of
        an evaluation has to be divisible; the trainer has `eval_rollouts`."""
        written = cfg.trl or {}
        forgotten = {name: written[name] for name in _FORGOTTEN if written.get(name)}
        return {"num_generations_eval": 1, **forgotten}


def find_section() -> AxolotlSection | None:
    """The section that the registered plugin has read; None if it is not registered."""
    plugins = PluginManager.get_instance().plugins.values()
    return next((plugin.section for plugin in plugins if isinstance(plugin, Plugin)), None)


def section_of_this_run() -> AxolotlSection:
    """The same. Raises ConfigError if there is none."""
    section = find_section()
    if section is None:
        raise ConfigError(f"no section agentsgym was read; add plugins: [{_HOME}.Plugin]")
    return section


def rollout_func(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
    """Play a trial for each prompt, with the settings of the section, as
    `agentsgym.integrations.trl.RolloutFunc`.

    Raises SeveralRows (a ValueError) for a trial that gives several rows.
    """
    return section_of_this_run().rollouts(prompts, trainer)


def _keys_of_axolotl() -> dict[str, str]:
    """Settings and the keys of Axolotl that set them."""
    top = {name: name for name in AxolotlInputConfig.model_fields}
    return top | {name: f"trl.{name}" for name in TRLConfig.model_fields}


def _refuse(cfg: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    for key, why in _REFUSED.items():
        place, _, name = key.rpartition(".")
        value = ((cfg.get(place) or {}) if place else cfg).get(name)
        if key == "datasets" and isinstance(value, list):  # Axolotl adds keys to an entry
            value = [{"path": entry.get("path")} for entry in value]
        if value and value != ours.get(key):
            raise ConfigError(f"{key} has no use with the agentsgym plugin: {why}")


def _folder(base_model: Any) -> Any:
    """The directory of a model that ships with agentsgym; other names as they are."""
    return str(model_place(str(base_model))) if str(base_model).startswith(_BUILTIN) else base_model
