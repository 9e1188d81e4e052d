"""AxolotlEnvConfig: the settings of the trainer, from Axolotl's arguments and our section."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from axolotl.core.training_args import AxolotlTrainingMixins

from agentsgym.integrations.axolotl.section import OWN_SETTINGS
from agentsgym.training import GRPOEnvConfig

# num_generations_eval is only set so that TRL's check of it passes; eval_rollouts is ours.
_NOT_TAKEN = OWN_SETTINGS | {"num_generations_eval"}


@dataclass
class AxolotlEnvConfig(GRPOEnvConfig, AxolotlTrainingMixins):  # type: ignore[misc]
    """`GRPOEnvConfig` with the fields that Axolotl's mixins read. Where both have one of the same
    name (`chat_template`), it is ours. Checkpoints pickle it, so it stands in a module."""

    context_parallel_size: int | None = None

    @classmethod
    def of(cls, given: Any, settings: Mapping[str, Any]) -> "AxolotlEnvConfig":
        """Axolotl's arguments (an AxolotlGRPOConfig) and the settings of the section.

        Raises ValueError for settings that would be ignored or do not agree, as `GRPOEnvConfig`.
        """
        names = [field.name for field in dataclasses.fields(cls) if field.init]
        taken = {
            name: getattr(given, name)
            for name in names
            if name not in _NOT_TAKEN and hasattr(given, name)
        }
        return cls(**{**taken, **settings})
