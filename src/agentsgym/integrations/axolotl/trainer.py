"""AxolotlEnvTrainer: GRPOEnvTrainer with Axolotl's optimizers, schedulers and checkpoints."""

from pathlib import Path
from typing import Any

from axolotl.core.trainers.mixins import (
    DistributedParallelMixin,
    RngLoaderMixin,
    SchedulerMixin,
)
from axolotl.core.trainers.mixins.optimizer import OptimizerInitMixin, OptimizerMixin

from agentsgym.integrations.axolotl.config import AxolotlEnvConfig
from agentsgym.integrations.axolotl.plugin import section_of_this_run
from agentsgym.runs.files import RolloutWriter
from agentsgym.training import GRPOEnvTrainer


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
