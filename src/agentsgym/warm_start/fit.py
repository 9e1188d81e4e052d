"""Warm start: supervised training on recorded games, before reinforcement learning.

One loop trains a new tiny model on games that are played as they are needed, and a pretrained model
on games that are stored. The model reads the same kind of transcripts that it will write later, and
learns only from the agent's tokens.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agentsgym.generation.models import is_adapted
from agentsgym.training.loss.batch import hidden_states_at
from agentsgym.training.loss.layout import pack, padded
from agentsgym.warm_start.lessons import (
    Batches,
    Example,
    Lessons,
    epoch_batches,
    normalize,
    sum_of_weights,
)
from agentsgym.warm_start.settings import WarmStartSettings

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Receives (updates done, all updates, {"loss", "lr"} and, once known, "held_out_loss")."""
Autocast = Callable[[], AbstractContextManager[Any]]
WINDOW, REST = 100, 0.02
"""The loss rests if its mean over so many updates is not this share lower than over those before.
The mean of 100 updates of 32 games has a standard error of about a percent."""
_LAST = 4
"""The learning rate falls over a fourth of the updates before, or a fifth of all: as MiniCPM's
schedule of warm-up, rest and decay, which needs 10 to 20 % (arXiv 2404.06395)."""
_NO_SCALER = torch.amp.GradScaler("cpu", enabled=False)


def no_progress(step: int, steps: int, values: Mapping[str, float]) -> None:
    """No progress report."""


@dataclass(frozen=True, slots=True)
class FitResult:
    """Figures of a finished warm start. `step` is the update whose weights were kept (0: those
    before training), `steps` the number of updates; `late` says whether its time was used up;
    losses are in nats per target."""

    step: int
    steps: int
    stopped_early: bool
    late: bool
    first_loss: float
    loss: float
    held_out_losses: Mapping[int, float]


def imitate(
    model: Any,
    batches: Batches,
    settings: WarmStartSettings,
    *,
    pad_id: int,
    progress: Progress = no_progress,
    learned: Callable[[], bool] | None = None,
) -> FitResult:
    """Train `model` in place on `steps` of these batches; it ends in evaluation mode.

    With `learned` it ends before: `learned` is asked whenever the loss rests, with the model in
    evaluation mode, and once it is true a quarter of the updates so far follow, in which the
    learning rate falls.
    """
    settings = settings.resolved(new_model=True)
    assert settings.steps is not None
    training = _Training(model, batches, settings, pad_id, settings.steps, learned=learned)
    return training.run(progress)


def fit(
    model: Any,
    lessons: Lessons,
    settings: WarmStartSettings,
    *,
    pad_id: int,
    autocast: Autocast = nullcontext,
    scaler: torch.amp.GradScaler = _NO_SCALER,
    progress: Progress = no_progress,
) -> FitResult:
    """Train `model` in place on stored games; it ends in evaluation mode with the best weights.

    Everything that requires a gradient is trained: all weights, or the adapters of a PEFT model.
    The best weights are those with the lowest held-out loss; without held-out examples the last
    ones. `autocast` makes the context of every forward pass (`accelerator.autocast`), and `scaler`
    keeps the gradients of float16 from becoming 0. Raises ValueError if nothing in the model
    requires a gradient.
    """
    settings = settings.resolved(new_model=False)
    assert settings.batch_size is not None and settings.epochs is not None
    batches = epoch_batches(lessons.train, settings.batch_size, settings.seed)
    per_epoch = -(-len(lessons.train) // settings.batch_size)
    steps = settings.epochs * per_epoch
    steps = min(steps, settings.steps or steps)
    held_out = normalize(lessons.held_out, max(1, len(lessons.held_out)))
    training = _Training(
        model,
        batches,
        settings,
        pad_id,
        steps,
        autocast,
        held_out,
        scaler=scaler,
        every=settings.eval_steps or per_epoch,
    )
    return training.run(progress)


# -- the loop --------------------------------------------------------------------------------------


@dataclass
class _Training:
    """One warm start: `steps` updates of AdamW on `batches`. After `every` updates it computes the
    loss of the `held_out` examples, and keeps the weights if it is the lowest so far."""

    model: Any
    batches: Batches
    settings: WarmStartSettings
    pad_id: int
    steps: int
    autocast: Autocast = nullcontext
    held_out: Sequence[Example] = ()
    scaler: torch.amp.GradScaler = _NO_SCALER
    every: int | None = None
    learned: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        most = self.steps
        is_open = self.learned is not None or self.settings.max_seconds is not None
        # Of a warm start whose end is open: the update from which its learning rate falls.
        self._falls_from = most - most // (1 + _LAST) if is_open else None
        self._trained = [p for p in self.model.parameters() if p.requires_grad]
        self._optimizer = _optimizer(self._trained, self.settings)
        self._adapters = is_adapted(self.model)
        self._late = False
        self._best = 0
        self._best_weights: list[torch.Tensor] = []
        self._held_out_losses: dict[int, float] = {}  # by the step before which they were computed
        self._losses: list[float] = []

    def run(self, progress: Progress) -> FitResult:
        """Train, and end with the best weights in evaluation mode."""
        losses, step, begun = self._losses, 0, time.monotonic()
        self._hold_out(step)
        while step < self.steps and not self._patience_ends():
            losses.append(self._update(step))
            step += 1
            if self.every and (step % self.every == 0 or step == self.steps):
                self._hold_out(step)
            self._end_if_learned(step, time.monotonic() - begun)
            progress(step, self.steps, self._report())
        if self.held_out and self._best != step:
            with torch.no_grad():
                for parameter, best in zip(self._trained, self._best_weights, strict=True):
                    parameter.copy_(best)
        self.model.eval()
        return FitResult(
            step=self._best if self.held_out else step,
            steps=step,
            stopped_early=step < self.steps,
            late=self._late,
            first_loss=_mean(losses[:1]),
            loss=_mean(losses[-max(1, step // 10) :]),
            held_out_losses=dict(self._held_out_losses),
        )

    def _end_if_learned(self, step: int, seconds: float) -> None:
        """Let the learning rate fall from now on if the loss rests and `learned` says so, or if
        there is hardly any time left."""
        most = self.settings.max_seconds
        if self.steps - step <= max(1, step // _LAST):
            return
        self._late = most is not None and seconds > most * _LAST / (1 + _LAST)
        if self._late or (self._rests(step) and self._has_learned()):
            self._falls_from, self.steps = step, step + max(1, step // _LAST)

    def _has_learned(self) -> bool:
        if self.learned is None:
            return False
        self.model.eval()
        return self.learned()

    def _rests(self, step: int) -> bool:
        """Whether the loss of the last updates is hardly lower than that of those before."""
        if step % WINDOW or step <= WINDOW:
            return False
        now, before = (_mean(self._losses[step - k * WINDOW :][:WINDOW]) for k in (1, 2))
        return now >= (1 - REST) * before

    def _patience_ends(self) -> bool:
        since = sum(step > self._best for step in self._held_out_losses)
        return since >= self.settings.patience

    def _hold_out(self, step: int) -> None:
        """Compute the held-out loss before this step, if there are examples for it."""
        if not self.held_out:
            return
        loss = self._held_out_loss()
        if loss < min(self._held_out_losses.values(), default=float("inf")):
            self._best = step
        if self._best == step:
            self._best_weights = [p.detach().to("cpu", copy=True) for p in self._trained]
        self._held_out_losses[step] = loss

    def _report(self) -> dict[str, float]:
        values = {"loss": _mean(self._losses[-20:]), "lr": self._optimizer.param_groups[0]["lr"]}
        if self._held_out_losses:
            values["held_out_loss"] = self._held_out_losses[max(self._held_out_losses)]
        return values

    def _update(self, step: int) -> float:
        """One update; returns its loss in nats per target."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.settings.rate_at(
                step, self.steps, adapters=self._adapters, falls_from=self._falls_from
            )
        batch = self.batches(step)
        total = 0.0
        self.model.train()
        # Dropout's noise depends only on the seed and the step, so that a resumed run repeats it.
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.seed + step)
            for chunk in self._chunks(batch):
                loss = self._loss(chunk)
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
        self.scaler.unscale_(self._optimizer)
        torch.nn.utils.clip_grad_norm_(self._trained, self.settings.max_grad_norm)
        self.scaler.step(self._optimizer)
        self.scaler.update()
        self._optimizer.zero_grad()
        return total

    @torch.no_grad()
    def _held_out_loss(self) -> float:
        self.model.eval()
        losses = (float(self._loss(chunk)) for chunk in self._chunks(self.held_out))
        return sum(losses) / sum_of_weights(self.held_out)

    def _chunks(self, examples: Sequence[Example]) -> list[list[Example]]:
        assert self.settings.max_tokens_per_forward is not None
        return pack(examples, self.settings.max_tokens_per_forward)

    def _loss(self, chunk: Sequence[Example]) -> torch.Tensor:
        with self.autocast():
            return target_loss(self.model, *pad(chunk, self.pad_id))


def _optimizer(
    trained: Sequence[torch.nn.Parameter], settings: WarmStartSettings
) -> torch.optim.AdamW:
    assert settings.adam_beta2 is not None
    if not trained:
        raise ValueError("nothing in this model requires a gradient")
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        betas=(0.9, settings.adam_beta2),
        fused=trained[0].is_cuda,
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


# -- the loss --------------------------------------------------------------------------------------


def pad(examples: Sequence[Example], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`ids` int64 and `weights` float32, shape (B, T), padded on the right.

    Padding needs no attention mask, because a causal model never attends to later positions.
    """
    length = max(example.length for example in examples)
    ids = padded([example.ids for example in examples], length, pad_id, np.int64)
    weights = padded([example.weights for example in examples], length, 0.0, np.float32)
    return torch.from_numpy(ids), torch.from_numpy(weights)


def target_loss(model: Any, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Σ weight · cross-entropy (nats, temperature 1) of each id given the ids before it.

    Both have shape (B, T). Logits are computed at targets only. 0 if there are no targets.
    """
    device = next(model.parameters()).device
    ids, weights = ids.to(device), weights.to(device)
    targets = weights[:, 1:] > 0
    with hidden_states_at(model, targets.flatten().nonzero()[:, 0], targets.numel()):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits[0].float()
    losses = torch.nn.functional.cross_entropy(logits, ids[:, 1:][targets], reduction="none")
    return (losses * weights[:, 1:][targets]).sum()
