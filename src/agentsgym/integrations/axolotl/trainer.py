"""The trainer that Axolotl runs, and its settings from Axolotl's arguments and our section."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axolotl.core.trainers.mixins import DistributedParallelMixin, RngLoaderMixin, SchedulerMixin
from axolotl.core.trainers.mixins.optimizer import OptimizerInitMixin, OptimizerMixin
from axolotl.core.training_args import AxolotlTrainingMixins

from agentsgym.integrations.axolotl.plugin import OWN_SETTINGS, section_of_this_run
from agentsgym.runs.files import RolloutWriter
from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer

# num_generations_eval is only set so that TRL's check of it passes; eval_rollouts is ours.
_NOT_TAKEN = OWN_SETTINGS | {"num_generations_eval"}


@dataclass
class AxolotlEnvConfig(GRPOEnvConfig, AxolotlTrainingMixins):  # type: ignore[misc]
    """`GRPOEnvConfig` with the fields that Axolotl's mixins read. Where both have one of the same
    name (`chat_template`), it is ours. Checkpoints pickle it, so it stands in a module."""

    context_parallel_size: int | None = None

    @classmethod
    def of(cls, arguments: Any, settings: Mapping[str, Any]) -> "AxolotlEnvConfig":
        """Axolotl's arguments (an AxolotlGRPOConfig), where None is what nobody has set, and the
        settings of the section.

        Raises ValueError for settings that would be ignored or do not agree, as `GRPOEnvConfig`.
        """
        names = [field.name for field in dataclasses.fields(cls) if field.init]
        taken = {
            name: getattr(arguments, name)
            for name in names
            if name not in _NOT_TAKEN and getattr(arguments, name, None) is not None
        }
        return cls(**{**taken, **settings})


class AxolotlEnvTrainer(
    RngLoaderMixin,  # type: ignore[misc]
    SchedulerMixin,  # type: ignore[misc]
    OptimizerMixin,  # type: ignore[misc]
    OptimizerInitMixin,  # type: ignore[misc]
    DistributedParallelMixin,  # type: ignore[misc]
    GRPOEnvTrainer,
):
    """The trainer that the plugin puts in the place of Axolotl's. Rollouts are written to
    `output_dir`.

    Args:
        model: the model, with its adapter if there is one.
        args: Axolotl's arguments, or an `AxolotlEnvConfig`.
        train_dataset: rows that name their environment, from the plugin.
        **options: the other arguments of `GRPOEnvTrainer`, and `optimizer_cls_and_kwargs`.
    """

    _tag_names = ("trl", "grpo", "axolotl", "agentsgym")

    def __init__(self, model: Any, args: Any, train_dataset: Any, **options: Any) -> None:
        if not isinstance(args, AxolotlEnvConfig):
            section = section_of_this_run()
            settings = {**section.settings, "trust": section.trust}
            args = AxolotlEnvConfig.of(args, settings)
        options.setdefault("rollout_sink", RolloutWriter(Path(args.output_dir)))
        super().__init__(model, args, train_dataset, **options)
