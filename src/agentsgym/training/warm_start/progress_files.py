"""The checkpoints of a warm start: weights and optimizer in safetensors files, figures in JSON.

A checkpoint appears only when it is complete. No file of it is a pickle, so reading one runs no
code.
"""

import json
import re
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

_NAME = re.compile(r"checkpoint-(\d+)")
_WEIGHTS, _OPTIMIZER, _FIGURES = "weights.safetensors", "optimizer.safetensors", "progress.json"


@dataclass(slots=True)
class Progressed:
    """How far a warm start has come: `step` updates done; `held_out` losses (nats per target) by
    the step before which they were computed; `losses`, one per update; the `best` step."""

    step: int = 0
    best: int = 0
    held_out: dict[int, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)

    @property
    def without_better(self) -> int:
        """Number of held-out losses since the lowest."""
        return sum(step > self.best for step in self.held_out)

    def note_held_out(self, loss: float) -> None:
        """Record the held-out loss of the current weights."""
        lowest = min(self.held_out.values(), default=float("inf"))
        self.held_out[self.step] = loss
        if loss < lowest:
            self.best = self.step


class ProgressFiles:
    """The checkpoints in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, model: Any, optimizer: Any, progressed: Progressed) -> None:
        """Write a checkpoint of the current step, and remove all but it and the best."""
        path = self._path(progressed.step)
        part = path.with_name(f"{path.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        save_file(_trainable(model), part / _WEIGHTS)
        save_file(_optimizer_tensors(optimizer), part / _OPTIMIZER)
        (part / _FIGURES).write_text(json.dumps(asdict(progressed)), encoding="utf-8")
        shutil.rmtree(path, ignore_errors=True)
        part.rename(path)
        self._keep({progressed.step, progressed.best})

    def resume(self, model: Any, optimizer: Any) -> Progressed:
        """Load the newest checkpoint that can be read; the start of training if there is none."""
        for step in sorted(self._steps(), reverse=True):
            try:
                return self._load(step, model, optimizer)
            except Exception:  # the readers raise many kinds of errors for damaged files
                shutil.rmtree(self._path(step), ignore_errors=True)
        return Progressed()

    def load_weights(self, step: int, model: Any) -> None:
        """Load the weights of a checkpoint."""
        own = dict(model.named_parameters())
        stored = load_file(self._path(step) / _WEIGHTS)
        if {n: p.shape for n, p in own.items() if p.requires_grad} != {
            n: tensor.shape for n, tensor in stored.items()
        }:
            raise ValueError(f"{self._path(step)} has the weights of another model")
        with torch.no_grad():
            for name, tensor in stored.items():
                own[name].copy_(tensor)

    def _load(self, step: int, model: Any, optimizer: Any) -> Progressed:
        record = json.loads((self._path(step) / _FIGURES).read_bytes())
        held_out = {int(k): float(v) for k, v in record["held_out"].items()}
        losses = [float(value) for value in record["losses"]]
        progressed = Progressed(int(record["step"]), int(record["best"]), held_out, losses)
        tensors = load_file(self._path(step) / _OPTIMIZER)
        if progressed.step != step or not (self._path(progressed.best) / _WEIGHTS).is_file():
            raise ValueError("the checkpoint is not complete")
        self.load_weights(step, model)
        _load_optimizer(optimizer, tensors)
        return progressed

    def _path(self, step: int) -> Path:
        return self._folder / f"checkpoint-{step}"

    def _steps(self) -> list[int]:
        found = (_NAME.fullmatch(path.name) for path in self._folder.glob("checkpoint-*"))
        return [int(match[1]) for match in found if match]

    def _keep(self, steps: Collection[int]) -> None:
        for step in self._steps():
            if step not in steps:
                shutil.rmtree(self._path(step), ignore_errors=True)


def _trainable(model: Any) -> dict[str, torch.Tensor]:
    return {
        name: parameter.detach().contiguous()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


def _optimizer_tensors(optimizer: Any) -> dict[str, torch.Tensor]:
    """The optimizer's tensors, by the number of their parameter and their name."""
    states = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value).contiguous()
        for number, state in states.items()
        for name, value in state.items()
    }


def _load_optimizer(optimizer: Any, tensors: dict[str, torch.Tensor]) -> None:
    states: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        states.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
