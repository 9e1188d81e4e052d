"""Checkpoints at the ends of generations, and the weights of adapters in files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from transformers import TrainerCallback


class GenerationEndCallback(TrainerCallback):  # type: ignore[misc]
    """Delays actions that are due within a generation to its end, or to the end of training.

    A run resumed within a generation would play it again, with other weights than the
    uninterrupted run. If an evaluation selects the best model, it is delayed too, so that the
    evaluated model is the saved one.
    """

    def __init__(self, args: Any, begin: Callable[[int], None]) -> None:
        """`begin(step)` is called when training begins or continues after an optimizer step."""
        best = args.load_best_model_at_end or args.save_strategy == "best"
        self._updates = args.updates_per_generation
        self._kinds = ("should_save", "should_evaluate") if best else ("should_save",)
        self._begin = begin
        self._due: set[str] = set()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Forget delayed actions of an earlier training."""
        self._due.clear()
        self._begin(state.global_step)

    def may_save(self, state: Any, control: Any) -> bool:
        """Whether a checkpoint made now can be resumed exactly, or is the last one. If not, one is
        made at the next end of a generation."""
        allowed = state.global_step % self._updates == 0 or bool(control.should_training_stop)
        if not allowed:
            self._due.add("should_save")
        return allowed

    def put_off(self, state: Any, control: Any) -> None:
        """Cancel actions that are not allowed now, and request delayed ones that are."""
        self._due |= {kind for kind in self._kinds if getattr(control, kind)}
        allowed = not self._due or self.may_save(state, control)
        for kind in self._kinds:
            setattr(control, kind, allowed and kind in self._due)
        if allowed:
            self._due.clear()


# -- adapters --------------------------------------------------------------------------------------
#
# PEFT's own loader also reads a configuration beside the weights, which may name modules to import,
# and pickled weights. Here only tensors are read, into adapters that the model already has.

WEIGHTS = "adapter_model.safetensors"
MAIN = "default"
"""PEFT's name of the adapter in a directory itself; others are in folders of their name."""


def load_adapters(model: Any, folder: Path) -> None:
    """Load the weights of every adapter of `model` for which `folder` has some.

    Raises ValueError if they belong to another adapter.
    """
    for name in model.peft_config:
        inside = folder if name == MAIN else folder / name
        if (inside / WEIGHTS).is_file():
            load_adapter(model, inside, name)


def load_adapter(model: Any, folder: Path, name: str = MAIN) -> None:
    """Load the weights in `folder` into the adapter `name` of `model`.

    Raises ValueError if they belong to another adapter, FileNotFoundError if there are none.
    """
    from peft import set_peft_model_state_dict

    stored = load_file(str(folder / WEIGHTS))
    try:
        keys = set_peft_model_state_dict(model, stored, adapter_name=name)
    except (RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{folder}: the adapter does not fit the model ({reason})") from None
    lacks = [key for key in keys.missing_keys if f".{name}." in key]
    if lacks:
        raise ValueError(f"{folder}: the adapter lacks {len(lacks)} weights, {lacks[0]!r} first")
    if keys.unexpected_keys:
        more = keys.unexpected_keys
        raise ValueError(f"{folder}: the model has no place for {more[0]!r} of the adapter")
