"""GRPOEnvTrainer: TRL's GRPOTrainer, for training on the actions of agents in environments.

TRL keeps data loading, models, PEFT, the reference model, optimizer, logging and checkpoints. We
replace generation, the loss and evaluation, and call none of their base methods. The first half of
this module reads as one training step, top to bottom: rollouts, their advantages, loss weights, the
loss. TRL shuffles and splits whole rollouts.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agentsgym.credit import find_estimator
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.evaluation.metrics import record, summarize
from agentsgym.training.advantages import ChoiceScorer, GenerationAdvantages
from agentsgym.training.batches import GenerationBatches
from agentsgym.training.chat_templates import tell_about, template_options
from agentsgym.training.checkpoints import GenerationEndCallback, check_metric, with_metric
from agentsgym.training.collect import RolloutCollector, WeightSync, check_ray
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.datasets import (
    check_training_set,
    checked_tasks,
    chosen_sets,
    evaluation_sets,
    refuse_bad_rows,
    tasks_per_generation,
)
from agentsgym.training.engines import Note, check_ahead, check_engine, check_own_engine, own_engine
from agentsgym.training.loss.batch import TrainRollout
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.loss.micro_batch import MicroBatchLoss
from agentsgym.training.loss.objective import settings_of
from agentsgym.training.loss.weights import assign_weights, count, total
from agentsgym.training.metrics import completion_lines, mean_of_sums, warn_of_capped_rows
from agentsgym.training.ranks import Gradients, Ranks
from agentsgym.training.reference import (
    check_reference,
    load_reference,
    reference_adapter,
    save_reference,
)
from agentsgym.training.setting_checks import notes
from agentsgym.training.stopping import FailureReport, LowSignalCallback
from agentsgym.training.tasks import CheckedTasks, TaskSampler, TaskStream
from agentsgym.training.token_sample import TokenRecordsCallback, TokenSample, TokenSink
from agentsgym.training.trl_base import TRLBase
from agentsgym.training.trl_settings import refuse_arguments
from agentsgym.types import Rollout, RolloutRequest, TrainableEngine
from agentsgym.types.records import Floats

__all__ = ["GRPOEnvTrainer", "RolloutSink", "TokenSink"]

logger = logging.getLogger(__name__)

RolloutSink = Callable[[Sequence[Rollout], Mapping[str, Any]], None]
"""Receives this rank's rollouts of each generation and evaluation, with `{"phase": "train" |
"eval", "step": global step, "rank": of this process, "advantages": per row of the rollouts, or
None}`, and `"dataset"`, the name of the evaluation set, if there are several."""


class GRPOEnvTrainer(TRLBase):
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
        refuse_arguments(trl)
        args = args or GRPOEnvConfig(output_dir="agentsgym-grpo")
        if not isinstance(args, GRPOEnvConfig):
            raise TypeError(f"args must be a GRPOEnvConfig, got {type(args).__name__}")
        if engine is None:
            check_own_engine(args)
        else:
            check_engine(engine, args)
        check_training_set(train_dataset, args)
        check_metric(args, eval_dataset)
        if trl.get("peft_config") is None:
            check_reference(model, args.beta)
        super().__init__(
            model=model,
            reward_funcs=_rewards_come_from_environments,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=evaluation_sets(eval_dataset),
            processing_class=processing_class,
            **trl,
        )
        pool = self._make_pool(envs)
        self.train_dataset = checked_tasks(train_dataset, args, self.shuffle_dataset, pool)
        refuse_bad_rows("eval_dataset", self.eval_dataset, pool)
        self.rollout_sink = rollout_sink
        self.ranks = Ranks(self.accelerator)
        self._prepare_rollouts(engine or own_engine(self, self.ranks, note), pool)
        self._prepare_loss(token_sink)
        self._add_callbacks(token_sink)
        self.first_figures: dict[str, float] | None = None
        self._tokens_here = 0

    def _make_pool(self, envs: Iterable[MultistepEnv]) -> EnvPool:
        args = self.args
        rendering = template_options(self.tokenizer, args.chat_template, self.chat_template_kwargs)
        if self.accelerator.is_main_process:
            tell_about(self.tokenizer, rendering)
            for sentence in notes(args):
                logger.warning("%s.", sentence)
        return EnvPool(self.tokenizer, args.trust, envs, template_options=rendering)

    def _prepare_rollouts(self, engine: TrainableEngine, pool: EnvPool) -> None:
        args = self.args
        check_ray(args, engine)
        check_ahead(args, engine)
        self.sync = WeightSync(engine, Path(args.output_dir) / "sync", self.ranks)
        self.collector = RolloutCollector(engine, pool, args, self.ranks)
        self.batches = GenerationBatches(
            args,
            self.train_dataset,
            self.collector,
            self.ranks,
            self.task_sampler,
            self.push_weights,
        )
        self.failures = FailureReport(self.ranks)

    def _prepare_loss(self, token_sink: TokenSink | None) -> None:
        args = self.args
        self.sample = TokenSample(0 if token_sink is None else args.token_records)
        scorer = Scorer(
            self.accelerator,
            self.ranks,
            self.tokenizer.pad_token_id,
            args.max_tokens_per_forward,
            args.pad_to_multiple_of,
        )
        self.loss = MicroBatchLoss(
            scorer,
            settings_of(args, self.epsilon_low, self.epsilon_high, self.router_aux_loss_coef),
            self.sample,
            reused=args.updates_per_generation > 1,
            aux_loss=self.balances_experts,
        )
        reads = find_estimator(args.advantage_estimator).reads_choices
        self.choices = ChoiceScorer(scorer, self.ranks, args.temperature) if reads else None
        self.gradients = Gradients(self.accelerator)

    def _add_callbacks(self, token_sink: TokenSink | None) -> None:
        args = self.args
        self.generation_end = GenerationEndCallback(args, self.begin_at)
        self.low_signal = LowSignalCallback(args.min_signal_share, args.min_signal_patience)
        for callback in (self.generation_end, self.low_signal):
            self.add_callback(callback)
        if token_sink is not None:
            index, updates = self.ranks.index, args.updates_per_generation
            self.add_callback(TokenRecordsCallback(self.sample, token_sink, index, updates))

    # -- a training step: rollouts and their advantages -----------------------------------------

    def task_sampler(self, dataset: Any) -> TaskSampler:
        """Tasks in groups, in an order that depends on the seed and the epoch alone."""
        return TaskSampler(
            len(dataset),
            group_size=self.num_generations,
            tasks=tasks_per_generation(self.args),
            repeats=self.num_iterations * self.args.steps_per_generation,
            seed=self.args.seed if self.args.data_seed is None else self.args.data_seed,
            epoch=lambda: self.epoch,
            shuffle=self.shuffle_dataset,
        )

    def generate_rollouts(self, inputs: Sequence[Mapping[str, Any]]) -> list[TrainRollout]:
        """Play one rollout per input row and assign credit."""
        started = time.perf_counter()
        step = self.state.global_step
        requests, rollouts = self.batches.next(inputs, step, self.state.max_steps)
        advantages = self._credit(rollouts)
        for round_ in range(self._resample_rounds()):
            if advantages.share_with_signal == 1.0:
                break
            rollouts = self._resample(requests, rollouts, advantages.signal, round_)
            advantages = self._credit(rollouts)
        seconds = time.perf_counter() - started
        if self.failures.tell(rollouts, "train", step):
            self.report(rollouts, "train", None)
            self.failures.stop(rollouts, step)
        trained = advantages.train_rollouts()
        self.loss.fill_logprobs(trained, self.model, self._reference if self.beta != 0.0 else None)
        self.sample.choose(trained, step)
        self._log_generation(rollouts, advantages, seconds)
        self.report(rollouts, "train", advantages.of_rows())
        return trained

    def push_weights(self, version: int) -> None:
        """Let the engine sample from the current weights; rollouts will record `version`, an
        optimizer step. Sessions that are being played ahead go on with them. All ranks must call
        it, and if it raises on one rank, every rank raises."""
        model = self.accelerator.unwrap_model(self.model)
        source = self.collector.source
        through = None if source is None else source.use_weights
        self.collector.await_engine()
        self.ranks.together(lambda: self.sync.push(model, version, through))
        for name, value in self.sync.take_metrics().items():
            self.record_metric(name, value)

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
        fresh = dict(zip(again, self.batches.play([requests[i] for i in again], step), strict=True))
        return [fresh.get(i, old) for i, old in enumerate(rollouts)]

    @contextmanager
    def _reference(self) -> Iterator[nn.Module]:
        """The reference model of KL: a copy, or the policy without its adapter."""
        if self.ref_model is not None:
            yield self.ref_model
            return
        with reference_adapter(self.accelerator.unwrap_model(self.model)):
            yield self.model

    # -- its loss weights -----------------------------------------------------------------------

    def weigh_rollouts(self, micro_batches: Sequence[Sequence[TrainRollout]]) -> None:
        """Fix the loss weights of each optimizer step, counted over all ranks."""
        size = self.args.gradient_accumulation_steps
        for start in range(0, len(micro_batches), size):
            rollouts = [r for batch in micro_batches[start : start + size] for r in batch]
            counts = total(self.ranks.gather([count(rollouts)]))
            rule = self.loss.objective.loss.weights
            assign_weights(rollouts, counts, rule, self.args.norm_tokens)

    # -- its loss -------------------------------------------------------------------------------

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

    def _record_means(self, parts: Sequence[Mapping[str, tuple[float, float]]]) -> None:
        """Log the means of a micro-batch over all its tokens, including those of other ranks."""
        for name, value in mean_of_sums(self.ranks.gather(list(parts))).items():
            self.record_metric(name, value)

    def train(self, *args: Any, **options: Any) -> Any:
        """Train as transformers does, and end the playing however training ends."""
        self.batches.begin()
        try:
            return super().train(*args, **options)
        finally:
            self.batches.end()

    # -- evaluation -----------------------------------------------------------------------------

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Play the evaluation tasks with the evaluation's own sampling; no loss is computed.

        `eval_dataset` is None for the trainer's own set, the name of one of several, or other rows.
        Returns and logs the metrics of `evaluation.metrics.summarize` under the prefix; for a dict
        of sets each under the prefix and the set's name.
        """
        data = chosen_sets(eval_dataset, self.eval_dataset, self.collector.envs)
        if not isinstance(data, Mapping):
            return self._evaluate_tasks(data, metric_key_prefix)
        metrics: dict[str, float] = {}
        for name, tasks in data.items():
            metrics |= self._evaluate_tasks(tasks, f"{metric_key_prefix}_{name}", name)
        return metrics

    def play_evaluation(self, requests: Sequence[RolloutRequest], step: int) -> list[Rollout]:
        """Play these with the current weights, those after optimizer step `step`, and with the
        evaluation's own sampling. All ranks must call it, each with its own requests."""
        self.push_weights(step)
        return self.ranks.together(lambda: self.collector.evaluate(requests))

    def _evaluate_tasks(self, tasks: Any, prefix: str, name: str = "") -> dict[str, float]:
        started = time.perf_counter()
        training = self.model.training
        self.model.eval()
        step, requests = self.state.global_step, self.collector.eval_requests(tasks)
        rollouts = self.play_evaluation(requests, step)
        self.failures.tell(rollouts, "eval", step)
        values = self.figures(rollouts)
        metrics = {f"{prefix}_{key}": value for key, value in values.items()}
        metrics = with_metric(self.args, metrics, prefix)
        metrics[f"{prefix}_runtime"] = time.perf_counter() - started
        self.report(rollouts, "eval", None, name)
        self.log(dict(metrics))
        self.model.train(training)
        control = getattr(self, "control", None)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, control, metrics)
        return metrics

    def predict(self, *_: Any, **__: Any) -> Any:
        """Not supported: there are no labels and no single prediction per row."""
        raise NotImplementedError(
            "an environment has no predictions to return; trainer.evaluate(tasks) plays tasks, and "
            "rollout_sink receives the rollouts"
        )

    # -- checkpoints ----------------------------------------------------------------------------

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

    def best_model_loaded(self) -> None:
        """Let the engine read the weights again, although there was no optimizer step."""
        self.sync.forget()

    def saving_checkpoint(self, folder: Path) -> None:
        """Also save a reference that follows the policy."""
        if self.args.should_save and self.args.sync_ref_model:
            folder.mkdir(parents=True, exist_ok=True)
            save_reference(self.accelerator.unwrap_model(self.ref_model), folder)

    def checkpoint_loaded(self, folder: Path) -> None:
        """Load the saved reference."""
        if self.args.sync_ref_model:
            load_reference(self.accelerator.unwrap_model(self.ref_model), folder)

    # -- figures and the sink -------------------------------------------------------------------

    def figures(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Figures of all ranks' rollouts, also per environment if rows name several."""
        records = self.ranks.gather([record(rollout) for rollout in rollouts])
        return summarize(records, per_environment=len(self.collector.envs.names) > 1)

    def report(
        self,
        rollouts: Sequence[Rollout],
        phase: str,
        advantages: Sequence[Floats] | None,
        name: str = "",
    ) -> None:
        """Pass rollouts to the sink if there is one."""
        info = {
            "phase": phase,
            "step": self.state.global_step,
            "rank": self.ranks.index,
            "advantages": advantages,
        }
        if name:
            info["dataset"] = name
        if self.rollout_sink is not None:
            sink = self.rollout_sink
            self.ranks.together(lambda: sink(rollouts, info))

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
        values |= self.batches.figures(rollouts, self.state.global_step)
        for name, value in values.items():
            if not math.isnan(value):
                self.record_metric(name, value)
        self.low_signal.update(signal)
        if self.first_figures is None:
            self.first_figures = values
        if self.args.log_completions:
            for line in self.ranks.gather(completion_lines(rollouts, advantages.of_rows())):
                self.record_completion(line.prompt, line.completion, line.reward, line.advantage)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, and warn if the cap on the sampler's ratio is reached often."""
        capped = self.recorded_metric("sampler/capped_rows")
        warn_of_capped_rows(capped, self.args.sampler_cap, self.model)
        # TRL writes its tables with every entry; an evaluation would write training's table again.
        self.log_completions = self.args.log_completions and self.model.training
        super().log(logs, start_time)


def _rewards_come_from_environments(**_: Any) -> list[float]:
    raise RuntimeError("rewards come from the environments; TRL must not request them")
