"""GRPOEnvTrainer: TRL's GRPOTrainer, for training on the actions of agents in environments.

TRL keeps data loading, models, PEFT, the reference model, optimizer, logging and checkpoints. We
replace generation, the loss and evaluation, and call none of their base methods. This module reads
as one training step, top to bottom: rollouts, their advantages, loss weights, the loss. TRL
shuffles and splits whole rollouts.
"""

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from agentsgym.credit import find_estimator
from agentsgym.envs import MultistepEnv
from agentsgym.training.advantages import GenerationAdvantages
from agentsgym.training.choices import ChoiceScorer
from agentsgym.training.completions_table import completion_lines
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.engines import Note
from agentsgym.training.loss.batch import TrainRollout
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.loss.micro_batch import MicroBatchLoss
from agentsgym.training.loss.objective import Sums, settings_of
from agentsgym.training.loss.weights import assign_weights, count, total
from agentsgym.training.metrics_log import mean_of_sums, warn_of_capped_rows
from agentsgym.training.playing import PlayingTrainer, RolloutSink
from agentsgym.training.ranks import Gradients
from agentsgym.training.reference_model import reference_adapter
from agentsgym.training.staleness import age
from agentsgym.training.stopping import LowSignalCallback
from agentsgym.training.tasks import CheckedTasks, TaskStream
from agentsgym.training.token_sample import TokenRecordsCallback, TokenSample, TokenSink
from agentsgym.types import Rollout, RolloutRequest, TrainableEngine
from agentsgym.types.records import Floats

__all__ = ["GRPOEnvTrainer", "RolloutSink", "TokenSink"]

logger = logging.getLogger(__name__)


class GRPOEnvTrainer(PlayingTrainer):
    """GRPO on multi-turn environments.

    Args:
        model: a Hugging Face causal language model, or its name or directory.
        args: a `GRPOEnvConfig`.
        train_dataset: rows `{"env_class_path", "env_config", "task_data"}`; environments may be
            mixed.
            An iterable (`datasets.IterableDataset`) is read as needed; `max_steps` then sets the
            length of training.
        eval_dataset: rows of the same kind, a dict of several such sets by name, or None; an
            iterable is read once, at the beginning. `RolloutRequest`s in place of rows also say
            how often and with which noise each task is played (`evaluation.rollout_requests`).
        processing_class: the tokenizer (taken from the model's directory if None).
        engine: a `TrainableEngine` that samples the actions; None makes the one that `args`
            select (docs/engines.md has the table).
        rollout_sink: receives every rollout.
        token_sink: receives the trainer's numbers for the tokens of `token_records` rollouts of
            each generation.
        envs: environment objects that play the rows of their class and config; necessary for
            objects that a configuration does not fully describe (an answerer of its own).
        note: is told in a sentence what is being waited for, such as servers that start.
        **trl: `callbacks`, `optimizers`, `peft_config`, `quantization_config` as TRL takes them.

    `first_figures` are the figures of the first generation that this trainer played, over all
    ranks; None before.

    Raises ValueError for a dataset that is too small for one generation, ConfigError (a ValueError)
    with the rows that do not follow the row schema or whose environment cannot be made, and
    TypeError with the members that an engine lacks.
    """

    def __init__(
        self,
        model: Any,
        args: GRPOEnvConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        *,
        engine: TrainableEngine | None = None,
        rollout_sink: RolloutSink | None = None,
        token_sink: TokenSink | None = None,
        envs: Iterable[MultistepEnv] = (),
        note: Note = logger.info,
        **trl: Any,
    ) -> None:
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            engine=engine,
            rollout_sink=rollout_sink,
            envs=envs,
            note=note,
            **trl,
        )
        self.sample = TokenSample(0 if token_sink is None else self.args.token_records)
        self.loss = MicroBatchLoss(
            Scorer(
                self.accelerator,
                self.ranks,
                self.tokenizer.pad_token_id,
                self.args.max_tokens_per_forward,
                self.args.pad_to_multiple_of,
            ),
            settings_of(self.args, self.epsilon_low, self.epsilon_high, self.router_aux_loss_coef),
            self.sample,
            reused=self.args.updates_per_generation > 1,
            aux_loss=self.balances_experts,
        )
        reads = find_estimator(self.args.advantage_estimator).reads_choices
        self.choices = (
            ChoiceScorer(self.loss.scorer, self.ranks, self.args.temperature) if reads else None
        )
        self.gradients = Gradients(self.accelerator)
        self.low_signal = LowSignalCallback(
            self.args.min_signal_share, self.args.min_signal_patience
        )
        self.add_callback(self.low_signal)
        if token_sink is not None:
            updates = self.args.updates_per_generation
            self.add_callback(
                TokenRecordsCallback(self.sample, token_sink, self.ranks.index, updates)
            )
        self.first_figures: dict[str, float] | None = None
        self._tokens_here = 0

    # -- rollouts and their advantages ----------------------------------------------------------

    def generate_rollouts(self, inputs: Sequence[Mapping[str, Any]]) -> list[TrainRollout]:
        """Play one rollout per input row and assign credit."""
        started = time.perf_counter()
        step = self.state.global_step
        requests, rollouts = self.next_batch(inputs)
        advantages = self._credit(rollouts)
        for round_ in range(self._resample_rounds()):
            if advantages.share_with_signal == 1.0:
                break
            rollouts = self._resample(requests, rollouts, advantages.signal, round_)
            advantages = self._credit(rollouts)
        played = time.perf_counter() - started
        if self.failures.tell(rollouts, "train", step):
            self.report(rollouts, "train", None)
            self.failures.stop(rollouts, step)
        trained = advantages.train_rollouts()
        self.loss.fill_logprobs(trained, self.model, self._reference if self.beta != 0.0 else None)
        self.sample.choose(trained, step)
        self._log_generation(rollouts, advantages, played)
        self.report(rollouts, "train", advantages.of_rows())
        return trained

    def _credit(self, rollouts: Sequence[Rollout]) -> GenerationAdvantages:
        choices = self.choices.choices_of(rollouts, self.model) if self.choices else ()
        return GenerationAdvantages(rollouts, self.args, self.ranks, choices)

    def _resample_rounds(self) -> int:
        rounds: int = self.args.max_resample_rounds
        return rounds if self.args.zero_signal_groups == "resample" else 0

    def _resample(
        self, requests: list[RolloutRequest], rollouts: list[Rollout], signal: Any, round_: int
    ) -> list[Rollout]:
        """Play another task in each group without signal."""
        step = self.state.global_step
        again = [i for i in range(len(requests)) if not signal[i]]
        for i in again:
            requests[i] = self.collector.other_task(requests[i], self.train_dataset, step, round_)
        fresh = dict(zip(again, self.collect([requests[i] for i in again]), strict=True))
        return [fresh.get(i, old) for i, old in enumerate(rollouts)]

    @contextmanager
    def _reference(self) -> Iterator[nn.Module]:
        """The reference model of KL: a copy, or the policy without its adapter."""
        if self.ref_model is not None:
            yield self.ref_model
            return
        with reference_adapter(self.accelerator.unwrap_model(self.model)):
            yield self.model

    # -- loss weights ---------------------------------------------------------------------------

    def weigh_rollouts(self, micro_batches: Sequence[Sequence[TrainRollout]]) -> None:
        """Fix the loss weights of each optimizer step, counted over all ranks."""
        size = self.args.gradient_accumulation_steps
        for start in range(0, len(micro_batches), size):
            rollouts = [r for batch in micro_batches[start : start + size] for r in batch]
            counts = total(self.ranks.gather([count(rollouts)]))
            rule = self.loss.objective.loss.weights
            assign_weights(rollouts, counts, rule, self.args.norm_tokens)

    # -- the loss -------------------------------------------------------------------------------

    def train_on(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> torch.Tensor:
        """Train on one micro-batch: a backward pass per chunk, so the largest chunk limits memory.

        Loss weights are final, so the averaging of gradients over ranks is undone.
        """
        started = time.perf_counter()
        chunks = self.loss.chunks(model, rollouts)
        padding = self.args.include_num_input_tokens_seen != "non_padding"
        self._tokens_here = self.loss.scorer.tokens_read(chunks, padding=padding)
        loss = torch.zeros((), device=self.accelerator.device)
        metrics = []
        for number, rows in enumerate(chunks):
            with self.gradients.exchanged(model, last=number == len(chunks) - 1):
                part = self.loss.of_chunk(model, rows)
                self.gradients.backward(part.loss * self.ranks.number)
            loss += part.loss.detach()
            metrics.append(part.metrics)
        self._record_means(metrics)
        self.record_metric("time/update", time.perf_counter() - started)
        # The logged loss is the mean over ranks of what they return; ours is their sum.
        return loss * self.ranks.number

    def loss_of(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> torch.Tensor:
        """The loss of a micro-batch, Σ weight·ℓ over its chunks, in one graph."""
        parts = [self.loss.of_chunk(model, rows) for rows in self.loss.chunks(model, rollouts)]
        self._record_means([part.metrics for part in parts])
        return torch.stack([part.loss for part in parts]).sum()

    def tokens_read(self) -> int:
        """Tokens of the last micro-batch, including those of other ranks."""
        return sum(self.ranks.gather([self._tokens_here]))

    # -- logs -----------------------------------------------------------------------------------

    def _record_means(self, parts: Sequence[Sums]) -> None:
        """Log the means of a micro-batch over all its tokens, including those of other ranks."""
        for name, value in mean_of_sums(self.ranks.gather(list(parts))).items():
            self.record_metric(name, value)

    def _log_generation(
        self, rollouts: Sequence[Rollout], advantages: GenerationAdvantages, seconds: float
    ) -> None:
        signal = advantages.share_with_signal
        values = self.figures(rollouts) | {
            "groups_without_signal": 1.0 - signal,
            "time/rollouts": seconds,
            "occupancy": self.collector.engine.stats.occupancy,
        }
        values |= self.collector.source_figures
        if isinstance(self.train_dataset, TaskStream | CheckedTasks):
            values["bad_rows"] = self.train_dataset.bad
        values |= self.ahead_figures() | self._ages(rollouts)
        for name, value in values.items():
            if not math.isnan(value):
                self.record_metric(name, value)
        self.low_signal.update(signal)
        if self.first_figures is None:
            self.first_figures = values
        if self.args.log_completions:
            self._log_completions(rollouts, advantages.of_rows())

    def _ages(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """The ages of the rollouts, for engines whose weights may be older than the policy."""
        if not self.collector.engine.can_generate_ahead:
            return {}
        updates, step = self.args.updates_per_generation, self.state.global_step
        ages = self.ranks.gather([age(rollout, step, updates) for rollout in rollouts])
        return {"staleness": sum(ages) / len(ages), "staleness/max": max(ages)}

    def _log_completions(self, rollouts: Sequence[Rollout], advantages: Sequence[Floats]) -> None:
        for line in self.ranks.gather(completion_lines(rollouts, advantages)):
            self.record_completion(line.prompt, line.completion, line.reward, line.advantage)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, and warn if the cap on the sampler's ratio is reached often."""
        capped = self.recorded_metric("sampler/capped_rows")
        warn_of_capped_rows(capped, self.args.sampler_cap, self.model)
        # TRL writes its tables with every entry; an evaluation would write training's table again.
        self.log_completions = self.args.log_completions and self.model.training
        super().log(logs, start_time)
