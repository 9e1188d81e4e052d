"""Supervised training of a pretrained model on games: a phase before reinforcement learning.

Everything that requires a gradient is trained: all weights, or the adapters of a PEFT model. Equal
arguments give equal weights on one machine, also if training was killed and resumed.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentsgym.generation.adapted import is_adapted
from agentsgym.training.trl_compat import fused_head
from agentsgym.training.warm_start.imitation import Example, pad
from agentsgym.training.warm_start.lessons import Lessons
from agentsgym.training.warm_start.progress_files import Progressed, ProgressFiles
from agentsgym.training.warm_start.supervised import SupervisedConfig

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Receives (updates done, all updates, {"loss", "lr"} and, once known, "held_out_loss")."""
Autocast = Callable[[], AbstractContextManager[Any]]

_IGNORED = -100  # label of a position without loss


@dataclass(frozen=True, slots=True)
class FitResult:
    """Figures of a finished warm start. `step` is the update whose weights were kept (0: those
    before training), `steps` the number of updates; losses are in nats per target."""

    step: int
    steps: int
    stopped_early: bool
    first_loss: float
    loss: float
    held_out_losses: Mapping[int, float]


def fit(
    model: Any,
    lessons: Lessons,
    config: SupervisedConfig,
    *,
    pad_id: int,
    folder: Path | None = None,
    autocast: Autocast = nullcontext,
    progress: Progress | None = None,
) -> FitResult:
    """Train `model` in place; it ends in evaluation mode with the best weights.

    The best weights are those with the lowest held-out loss; without held-out examples the last
    ones. `folder` keeps checkpoints, from which the same call continues after a kill. `autocast`
    makes the context of every forward pass (`accelerator.autocast`). Raises ValueError if nothing
    in the model requires a gradient.
    """
    with tempfile.TemporaryDirectory() as scratch, fused_head(model):
        files = ProgressFiles(folder or Path(scratch))
        training = _Training(model, lessons, config, files, pad_id, autocast)
        result = training.carry_out(progress or _silent)
    model.eval()
    return result


def _silent(step: int, steps: int, values: Mapping[str, float]) -> None:
    """No progress report."""


class _Training:
    """One warm start during its execution."""

    def __init__(
        self,
        model: Any,
        lessons: Lessons,
        config: SupervisedConfig,
        files: ProgressFiles,
        pad_id: int,
        autocast: Autocast,
    ) -> None:
        self._model = model
        self._lessons = lessons
        self._config = config
        self._files = files
        self._pad_id = pad_id
        self._autocast = autocast
        self._optimizer = _optimizer(model, config)
        self._adapters = is_adapted(model)
        self._per_epoch = -(-len(lessons.train) // config.batch_size)
        steps = config.epochs * self._per_epoch
        self._steps = min(steps, config.max_steps or steps)
        self._every = config.eval_steps or self._per_epoch

    def carry_out(self, progress: Progress) -> FitResult:
        state = self._files.resume(self._model, self._optimizer)
        if state.step == 0 and not state.held_out:
            self._check_point(state)
        while state.step < self._steps and not self._is_over(state):
            state.losses.append(self._update(state.step))
            state.step += 1
            if state.step % self._every == 0 or state.step == self._steps:
                self._check_point(state)
            progress(state.step, self._steps, self._report(state))
        if self._lessons.held_out and state.best != state.step:
            self._files.load_weights(state.best, self._model)
        return self._result(state)

    def _is_over(self, state: Progressed) -> bool:
        return state.without_better >= self._config.patience

    def _check_point(self, state: Progressed) -> None:
        """Compute the held-out loss, and save."""
        if self._lessons.held_out:
            state.note_held_out(self._held_out_loss())
        self._files.save(self._model, self._optimizer, state)

    def _report(self, state: Progressed) -> dict[str, float]:
        rate = self._config.rate_at(state.step - 1, self._steps, adapters=self._adapters)
        values = {"loss": _mean(state.losses[-20:]), "lr": rate}
        if state.held_out:
            values["held_out_loss"] = state.held_out[max(state.held_out)]
        return values

    def _result(self, state: Progressed) -> FitResult:
        tenth = max(1, len(state.losses) // 10)
        return FitResult(
            step=state.best if self._lessons.held_out else state.step,
            steps=state.step,
            stopped_early=state.step < self._steps,
            first_loss=_mean(state.losses[:1]),
            loss=_mean(state.losses[-tenth:]),
            held_out_losses=dict(state.held_out),
        )

    def _update(self, step: int) -> float:
        """One update; returns its loss in nats per target."""
        rate = self._config.rate_at(step, self._steps, adapters=self._adapters)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        batch = self._batch(step)
        targets = _targets(batch)
        total = 0.0
        self._model.train()
        # Dropout's noise depends only on the seed and the step, so that a resumed run repeats it.
        with torch.random.fork_rng():
            torch.manual_seed(self._config.seed + step)
            for chunk in chunked(batch, self._config.max_tokens_per_forward):
                loss = self._loss(chunk) / targets
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
        trained = (p for group in self._optimizer.param_groups for p in group["params"])
        torch.nn.utils.clip_grad_norm_(trained, self._config.max_grad_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return total

    def _batch(self, step: int) -> list[Example]:
        """The examples of an update: each epoch takes every example once, in a new order."""
        epoch, number = divmod(step, self._per_epoch)
        rng = np.random.default_rng((self._config.seed, epoch))
        order = rng.permutation(len(self._lessons.train)).tolist()
        size = self._config.batch_size
        return [self._lessons.train[i] for i in order[number * size : (number + 1) * size]]

    @torch.no_grad()
    def _held_out_loss(self) -> float:
        self._model.eval()
        examples = self._lessons.held_out
        chunks = chunked(examples, self._config.max_tokens_per_forward)
        return sum(float(self._loss(chunk)) for chunk in chunks) / _targets(examples)

    def _loss(self, chunk: Sequence[Example]) -> torch.Tensor:
        with self._autocast():
            return target_loss(self._model, *pad(chunk, self._pad_id))


def target_loss(model: Any, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Σ weight · cross-entropy (nats, temperature 1) of each id given the ids before it.

    Both have shape (B, T); rows are padded on the right. `model` is inside `fused_head`, so that
    logits are computed at targets only.
    """
    device = next(model.parameters()).device
    ids, weights = ids.to(device), weights.to(device)
    labels = ids.masked_fill(weights == 0, _IGNORED)
    logps = model(input_ids=ids, labels=labels, fused_lm_head=True).log_probs
    loss: torch.Tensor = -(logps.float() * weights[:, 1:]).sum()
    return loss


def chunked(examples: Sequence[Example], most: int) -> Iterator[list[Example]]:
    """The examples in parts of at most `most` padded tokens, those of like length together. A
    longer example has a part of its own."""
    part: list[Example] = []
    for example in sorted(examples, key=lambda example: len(example.ids)):
        if part and (len(part) + 1) * len(example.ids) > most:
            yield part
            part = []
        part.append(example)
    if part:
        yield part


def _optimizer(model: Any, config: SupervisedConfig) -> torch.optim.AdamW:
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ValueError("nothing in this model requires a gradient")
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], betas=(0.9, config.adam_beta2), fused=True
    )


def _targets(examples: Sequence[Example]) -> float:
    """The sum of the weights; the first token of a row cannot be a target."""
    return sum(float(example.weights[1:].sum()) for example in examples)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
