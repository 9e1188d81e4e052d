"""The one place that depends on private names of TRL and of transformers' Trainer.

`TRLBase` gives our own names to the members that `GRPOEnvTrainer` overrides and reads; the head
computes the log-probabilities of agent tokens with TRL's head or, for a TRL without one, with ours.
All that differs between TRL 1.9 and 1.16 is here. tests/training/test_trl_base.py checks TRL's
private interface.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from transformers.utils import ModelOutput
from trl import GRPOTrainer
from trl.trainer import utils

from agentsgym.generation.models import is_adapted, without_adapter
from agentsgym.training.checkpoints import GenerationEndCallback, load_adapters
from agentsgym.training.stopping import GradientNotFinite


def _of_environments(**_: Any) -> list[float]:
    raise RuntimeError("rewards come from the environments; TRL must not request them")


# -- the head of the loss --------------------------------------------------------------------------
#
# `model(…, shift_labels=…, fused_lm_head=True)` returns log-probabilities and entropies of the
# labels, shape (1, P), which the hidden states of the P tokens before them predict
# (`hidden_states_at`), and never the logits of all. TRL 1.16 gives the models of its trainer such a
# head. Before 1.15 TRL has none, and that of 1.15 runs on Triton alone, so for these versions the
# models get ours.

TRL_HAS_HEAD = hasattr(utils, "_use_triton")
"""Whether the installed TRL has a head that also runs without Triton."""

_TILE = 8192  # columns; SmolLM2's head, 256 positions: 0.9 s against 1.2 s with 32,768


@dataclass
class LabeledOutput(ModelOutput):  # type: ignore[misc]
    """`log_probs` and `entropy` (nats), shape (1, P)."""

    log_probs: torch.Tensor | None = None
    entropy: torch.Tensor | None = None


def ensure_head(model: Any, temperature: float) -> None:
    """Give `model` a head at this temperature if TRL's trainer did not."""
    if not TRL_HAS_HEAD:
        add_own_head(without_adapter(model), temperature)


def add_head(model: Any, temperature: float) -> None:
    """Give a model that is not of TRL's trainer a head for log-probabilities."""
    add = utils.add_fused_lm_head if TRL_HAS_HEAD else add_own_head
    add(model, temperature=temperature)


@contextmanager
def fused_head_tiles(device: torch.device, vocabulary: int) -> Iterator[None]:
    """Inside the block, TRL's head computes in tiles of the vocabulary that suit the CPU's cache.

    Its own tiles have 32,768 columns even for a small vocabulary, whose rows then lie 128 KiB
    apart; a narrower tile gives the same bits in half of the time there, and less memory where the
    vocabulary is large.
    """
    if device.type != "cpu" or not TRL_HAS_HEAD:
        yield
        return
    before = utils._CHUNKED_LOGPROB_CHUNK_SIZE
    utils._CHUNKED_LOGPROB_CHUNK_SIZE = min(vocabulary, _TILE)
    try:
        yield
    finally:
        utils._CHUNKED_LOGPROB_CHUNK_SIZE = before


def add_own_head(model: Any, temperature: float) -> None:
    """Let `model.forward` take `fused_lm_head=True`; other calls stay what they are."""
    original = model.forward

    # `generate` compares its arguments with the signature of the class.
    @functools.wraps(type(model).forward)
    def forward(
        self: Any, *args: Any, shift_labels: Any = None, fused_lm_head: bool = False, **options: Any
    ) -> Any:
        if fused_lm_head:
            logits = original(*args, **options, use_cache=False).logits
            return LabeledOutput(*score_labels(logits, shift_labels, temperature))
        return original(
            *args, **options if shift_labels is None else {**options, "shift_labels": shift_labels}
        )

    model.forward = MethodType(forward, model)


def score_labels(
    logits: torch.Tensor, labels: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the labels and entropies (nats), of the labels' shape, by logits with
    one more dimension; one of -inf is of an id that cannot be chosen."""
    if logits.dtype != torch.float64:
        logits = logits.float()
    table = torch.log_softmax(logits / temperature, dim=-1)
    known = table.masked_fill(table == -torch.inf, 0.0)
    return known.gather(-1, labels[..., None])[..., 0], -(known.exp() * known).sum(-1)


# -- the trainer -----------------------------------------------------------------------------------


class TRLBase(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer with the generation, loss and checkpoints of a subclass.

    The subclass defines `generate_rollouts()`: this rank's rollouts of the next generation. TRL
    shuffles and splits them into micro-batches: `weigh_rollouts(micro_batches)`. It passes one per
    call of `training_step` to `train_micro_batch(model, rollouts)`, which adds the gradients and
    returns the loss. `generations_per_epoch` is a number, `best_model_loaded()` is called after the
    best weights were loaded, and `save_rollouts(checkpoint)` and `load_rollouts(checkpoint)` with
    each checkpoint.
    """

    def __init__(self, *args: Any, train_dataset: Any, **options: Any) -> None:
        # TRL refuses sequences of other classes than its own, and reads no row before training.
        placeholder = Dataset.from_dict({"env_class_path": [""]})
        super().__init__(*args, reward_funcs=_of_environments, train_dataset=placeholder, **options)
        self.train_dataset = train_dataset
        for model in (self.model, self.ref_model):
            if model is not None:
                ensure_head(self.accelerator.unwrap_model(model), self.temperature)
        self.generation_end = GenerationEndCallback(self.args, self.begin_at)
        self.add_callback(self.generation_end)

    # -- members for the subclass ---------------------------------------------------------------

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, with a padding token."""
        return self._tokenizer

    def record_metric(self, name: str, value: float) -> None:
        """Record a value of training; it is averaged over the steps until TRL's next log."""
        self._metrics["train"][name].append(value)

    def recorded_metric(self, name: str) -> list[float]:
        """The values of training since TRL's last log."""
        return list(self._metrics["train"].get(name, []))

    def add_first_callback(self, callback: TrainerCallback) -> None:
        """Add a callback that is called before all others: what it adds to the values of a log
        reaches the trackers, whose callbacks get the same dict."""
        self.callback_handler.callbacks.insert(0, callback)

    def report_evaluation(self, metrics: dict[str, float]) -> None:
        """Tell the callbacks of an evaluation."""
        control = getattr(self, "control", None)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, control, metrics)

    def begin_at(self, step: int) -> None:
        """Start or continue training after optimizer step `step`, with a new generation."""
        self._step = step * self.args.gradient_accumulation_steps
        self._buffered_inputs: Any = None

    def kept(self, name: str) -> dict[str, Any]:
        """A dict of plain values under a name, which checkpoints hold: a resumed run has it again,
        a new training begins with an empty one. It must be equal on all ranks."""
        values: dict[str, Any] = self.state.stateful_callbacks.setdefault(name, {})
        return values

    def predict(self, *_: Any, **__: Any) -> Any:
        """Not supported: there are no labels and no single prediction per row."""
        raise NotImplementedError(
            "an environment has no predictions to return; trainer.evaluate(tasks) plays tasks, and "
            "rollout_sink receives the rollouts"
        )

    # -- methods that TRL and transformers call -------------------------------------------------

    def get_train_dataloader(self) -> Any:
        """A number for each rollout of an epoch's micro-batches: tasks are drawn by the number of
        their generation."""
        updates = self.generations_per_epoch * self.args.updates_per_generation
        micro_batches = updates * self.args.gradient_accumulation_steps
        size = self._train_batch_size
        rows: Any = range(micro_batches * size * self.accelerator.num_processes)
        return self.accelerator.prepare(DataLoader(rows, batch_size=size, collate_fn=list))

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """The next micro-batch.

        When the last generation is used up, TRL makes a new one, shuffles it, splits it, and keeps
        the parts in a new list, from which each call takes one. So a list that did not exist before
        the call means a new generation.
        """
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is not None and self._buffered_inputs is not before:
            self.weigh_rollouts([part["rollouts"] for part in self._buffered_inputs])
        return inputs

    def _generate_and_score_completions(
        self, inputs: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """`rollout_index`, an int64 tensor of shape (B,), and `rollouts`, a list of B
        `TrainRollout` objects. TRL takes the batch size from the first value, hence the tensor."""
        rollouts = self.generate_rollouts()
        index = torch.arange(len(rollouts), device=self.accelerator.device)
        return {"rollout_index": index, "rollouts": rollouts}

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """One micro-batch. `train_micro_batch` runs the backward passes itself, with final weights,
        so nothing is divided by the accumulation steps."""
        model.train()
        loss: torch.Tensor = self.train_micro_batch(model, self._prepare_inputs(inputs)["rollouts"])
        every = self.args.torch_empty_cache_steps
        if every is not None and self.state.global_step % every == 0:
            clear_device_cache()
        self._step += 1
        return loss

    def _run_epoch(self, *args: Any, **options: Any) -> None:
        """The steps of an epoch; none if a resumed run has already made all of them."""
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(*args, **options)
        else:
            self.control.should_training_stop = True

    def _maybe_log_save_evaluate(
        self, loss: Any, grad_norm: Any, *args: Any, **options: Any
    ) -> None:
        self.generation_end.put_off(self.state, self.control)
        # float16's scaler leaves such an update out, and goes on with a smaller scale.
        broken = not math.isfinite(grad_norm or 0.0) and self.accelerator.scaler is None
        if broken:
            self.control.should_log, self.control.should_save = True, False
            self.control.should_evaluate = False
        super()._maybe_log_save_evaluate(loss, grad_norm, *args, **options)
        if broken:
            raise GradientNotFinite(float(grad_norm), self.state.global_step)

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        best: bool = super()._determine_best_metric(metrics, trial)
        if best and self.args.load_best_model_at_end:
            self.control.should_save = True
        return best

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        if self.generation_end.may_save(self.state, self.control):
            folder = Path(self._get_output_dir(trial=trial))
            checkpoint = folder / f"checkpoint-{self.state.global_step}"
            self.save_rollouts(checkpoint)
            super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # Rank 0 then writes trainer_state.json, which says that the checkpoint is complete.
        self.accelerator.wait_for_everyone()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        trained = self.model if model is None else model
        if is_adapted(trained) and not self.is_fsdp_enabled:
            load_adapters(trained, Path(resume_from_checkpoint))
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.load_rollouts(Path(checkpoint))

    def _load_best_model(self) -> None:
        super()._load_best_model()
        self.best_model_loaded()
