"""Checkpoints fall on the boundaries between generations."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback


class Boundaries(TrainerCallback):  # type: ignore[misc]
    """Puts off what is due within a generation to its end, or to that of training.

    A run that went on from within a generation would play it again, with other weights than the
    uninterrupted one. Where an evaluation decides which model is the best it is put off too, so
    that the model which was evaluated is the one that is saved.
    """

    def __init__(self, window: int, best: bool, begin: Callable[[int], None]) -> None:
        """`window` optimiser steps make a generation; `begin(step)` is called when training begins
        or goes on."""
        self._window = window
        self._kinds = ("should_save", "should_evaluate") if best else ("should_save",)
        self._begin = begin
        self._due: set[str] = set()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Nothing is due any more of an earlier training."""
        self._due.clear()
        self._begin(state.global_step)

    def allow(self, state: Any, control: Any) -> bool:
        """Whether a checkpoint that is made now can be resumed from exactly, or is the last."""
        return state.global_step % self._window == 0 or bool(control.should_training_stop)

    def put_off(self, state: Any, control: Any) -> None:
        """Take back what may not be done now, and ask for what was put off and may."""
        self._due |= {kind for kind in self._kinds if getattr(control, kind)}
        allowed = self.allow(state, control)
        for kind in self._kinds:
            setattr(control, kind, allowed and kind in self._due)
        if allowed:
            self._due.clear()

    def ask_for_checkpoint(self) -> None:
        """One is due at the next boundary."""
        self._due.add("should_save")
