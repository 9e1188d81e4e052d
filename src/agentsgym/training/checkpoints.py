"""When checkpoints are made, which is the best, and what they hold."""

from pathlib import Path
from typing import Any

from torch import nn
from trl import GRPOTrainer

from agentsgym.training.boundaries import Boundaries
from agentsgym.training.reference import load_reference, save_reference
from agentsgym.training.rollouts.weight_sync import WeightSync


class CheckpointingTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, with checkpoints on the boundaries between generations."""

    sync: WeightSync

    def __init__(self, *, args: Any, **trl: Any) -> None:
        super().__init__(args=args, **trl)
        best = args.load_best_model_at_end or args.save_strategy == "best"
        self.boundaries = Boundaries(args.steps_per_window, best, self._begin)
        self.add_callback(self.boundaries)

    def _begin(self, step: int) -> None:
        """Training begins or goes on after `step`: nothing of an earlier generation is left."""
        self._step = step * self.args.gradient_accumulation_steps
        self._buffered_inputs: Any = None

    def _run_epoch(self, *args: Any, **options: Any) -> None:
        """An epoch's steps; none where a run goes on that had made all of its steps."""
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(*args, **options)
        else:
            self.control.should_training_stop = True

    def _maybe_log_save_evaluate(self, *args: Any, **options: Any) -> None:
        self.boundaries.put_off(self.state, self.control)
        super()._maybe_log_save_evaluate(*args, **options)

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Whether the evaluated model is the best yet; one that may be loaded in the end is saved
        at once."""
        best: bool = super()._determine_best_metric(metrics, trial)
        if best and self.args.load_best_model_at_end:
            self.control.should_save = True
        return best

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save, or where a callback asks for it within a generation, at its end."""
        if not self.boundaries.allow(self.state, self.control):
            self.boundaries.ask_for_checkpoint()
            return
        super()._save_checkpoint(model, trial)
        if self.args.sync_ref_model and self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial))
            save_reference(self._reference(), folder / f"checkpoint-{self.state.global_step}")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.args.sync_ref_model:
            load_reference(self._reference(), Path(resume_from_checkpoint))

    def _reference(self) -> nn.Module:
        module: nn.Module = self.accelerator.unwrap_model(self.ref_model)
        return module

    def _load_best_model(self) -> None:
        super()._load_best_model()
        self.sync.forget()
