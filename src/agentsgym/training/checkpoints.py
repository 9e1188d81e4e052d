"""Checkpoints at the ends of generations, and their content."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from transformers import TrainerCallback

from agentsgym.training.collect import WeightSync
from agentsgym.training.reference_model import load_reference, save_reference
from agentsgym.training.trl_compat import TRLTrainer


class GenerationEndCallback(TrainerCallback):  # type: ignore[misc]
    """Delays actions that are due within a generation to its end, or to the end of training.

    A run resumed within a generation would play it again, with other weights than the
    uninterrupted run. If an evaluation selects the best model, it is delayed too, so that the
    evaluated model is the saved one.
    """

    def __init__(self, updates: int, best: bool, begin: Callable[[int], None]) -> None:
        """`updates` optimizer steps make a generation; `begin(step)` is called when training
        begins or continues."""
        self._updates = updates
        self._kinds = ("should_save", "should_evaluate") if best else ("should_save",)
        self._begin = begin
        self._due: set[str] = set()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Forget delayed actions of an earlier training."""
        self._due.clear()
        self._begin(state.global_step)

    def allow(self, state: Any, control: Any) -> bool:
        """Whether a checkpoint made now can be resumed exactly, or is the last one."""
        return state.global_step % self._updates == 0 or bool(control.should_training_stop)

    def put_off(self, state: Any, control: Any) -> None:
        """Cancel actions that are not allowed now, and request delayed ones that are."""
        self._due |= {kind for kind in self._kinds if getattr(control, kind)}
        allowed = self.allow(state, control)
        for kind in self._kinds:
            setattr(control, kind, allowed and kind in self._due)
        if allowed:
            self._due.clear()

    def ask_for_checkpoint(self) -> None:
        """Request a checkpoint at the next end of a generation."""
        self._due.add("should_save")


class CheckpointingTrainer(TRLTrainer):
    """TRL's trainer, with checkpoints at the ends of generations."""

    sync: WeightSync

    def __init__(self, *, args: Any, **trl: Any) -> None:
        super().__init__(args=args, **trl)
        best = args.load_best_model_at_end or args.save_strategy == "best"
        self.generation_end = GenerationEndCallback(
            args.updates_per_generation, best, self.begin_at
        )
        self.add_callback(self.generation_end)

    def before_save_and_evaluate(self) -> None:
        """Delay actions that are not allowed within a generation."""
        self.generation_end.put_off(self.state, self.control)

    def may_save(self) -> bool:
        """Whether a generation ends here. If a callback requests a checkpoint within one, it is
        made at its end."""
        allowed = self.generation_end.allow(self.state, self.control)
        if not allowed:
            self.generation_end.ask_for_checkpoint()
        return allowed

    def best_model_found(self) -> None:
        """Save the model at once if it may be loaded at the end."""
        if self.args.load_best_model_at_end:
            self.control.should_save = True

    def saving_checkpoint(self, folder: Path) -> None:
        """Also save a reference that follows the policy."""
        if self.args.should_save:
            folder.mkdir(parents=True, exist_ok=True)
        if self.args.sync_ref_model and self.args.should_save:
            save_reference(self._synced_reference(), folder)

    def checkpoint_loaded(self, folder: Path) -> None:
        """Load the saved reference."""
        if self.args.sync_ref_model:
            load_reference(self._synced_reference(), folder)

    def best_model_loaded(self) -> None:
        """Let the engine read the weights again, although there was no optimizer step."""
        self.sync.forget()

    def _synced_reference(self) -> nn.Module:
        module: nn.Module = self.accelerator.unwrap_model(self.ref_model)
        return module
