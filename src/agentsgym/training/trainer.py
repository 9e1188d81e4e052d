"""GRPOEnvTrainer: TRL's GRPOTrainer, for training on the actions of agents in environments.

TRL keeps data loading, models, PEFT, the reference model, optimizer, logging and checkpoints. We
replace generation, the loss and evaluation, and call none of their base methods. The first half of
this module reads as one training step, top to bottom: rollouts, their advantages, loss weights, the
loss. TRL shuffles and splits whole rollouts.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agentsgym.credit import find_estimator
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.training.advantages import ChoiceScorer, GenerationAdvantages
from agentsgym.training.batches import GenerationBatches
from agentsgym.training.branches import BranchPlan
from agentsgym.training.chat_templates import log_properties, template_options
from agentsgym.training.collect import RolloutCollector
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.critic import Critic
from agentsgym.training.engines import (
    Note,
    WeightSync,
    check_engine_at_work,
    check_engine_settings,
    engine_parts,
    own_engine,
)
from agentsgym.training.evaluation import (
    check_metric,
    chosen_sets,
    read_sets,
    refuse_bad_rows,
    with_metric,
)
from agentsgym.training.loss.batch import TrainRollout
from agentsgym.training.loss.forest import Layout, distinct_tokens
from agentsgym.training.loss.logprobs import Pass, Scorer
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.loss.objective import MicroBatchLoss
from agentsgym.training.loss.weights import assign_weights, streams_of
from agentsgym.training.metrics import Reports, RolloutSink, mean_of_sums, warn_of_capped_rows
from agentsgym.training.ranks import Gradients, Ranks
from agentsgym.training.reference import check_reference, reference_pass
from agentsgym.training.replay import ReplayBuffer
from agentsgym.training.stopping import FailureReport, LowSignalCallback
from agentsgym.training.tasks import Curriculum, read_training_set, training_tasks
from agentsgym.training.teacher import teacher_pass
from agentsgym.training.token_sample import TokenSample, TokenSink
from agentsgym.training.trl_base import TRLBase
from agentsgym.training.trl_settings import refuse_arguments
from agentsgym.training.update import Update, UpdateSize
from agentsgym.types import Rollout, RolloutRequest, SamplingParams, TrainableEngine

__all__ = ["GRPOEnvTrainer", "RolloutSink", "TokenSink"]

logger = logging.getLogger(__name__)


class GRPOEnvTrainer(TRLBase):
    """GRPO on multi-turn environments.

    Args:
        model: a Hugging Face causal language model, or its name or directory.
        args: a `GRPOEnvConfig`.
        train_dataset: rows `{"env_class_path", "env_config", "task_data"}`; environments may be
            mixed. Of an iterable (`datasets.IterableDataset`) what `max_steps` needs is read.
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
            objects that a configuration does not fully describe.
        note: gets a sentence about what is being waited for, such as servers that start.
        **trl: `callbacks`, `optimizers`, `peft_config`, `quantization_config` as TRL takes them.

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
        if isinstance(model, str) and model.startswith("builtin:"):
            raise ValueError(
                f"model={model!r} is a name of run files; pass the directory that "
                f"agentsgym.runs.builtin.model_place({model!r}) returns"
            )
        check_engine_settings(args, engine)
        train_dataset = read_training_set(train_dataset, args)
        check_metric(args, eval_dataset)
        if trl.get("peft_config") is None:
            check_reference(model, args.beta)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=read_sets(eval_dataset),
            processing_class=processing_class,
            **trl,
        )
        rendering = template_options(self.tokenizer, args.chat_template, self.chat_template_kwargs)
        if self.accelerator.is_main_process:
            log_properties(self.tokenizer, rendering)
        pool = EnvPool(self.tokenizer, args.trust, envs, template_options=rendering)
        self.tasks = training_tasks(train_dataset, args, self.shuffle_dataset, pool, self.kept)
        self.generations_per_epoch = self.tasks.generations
        refuse_bad_rows("eval_dataset", self.eval_dataset, pool)
        self.ranks = Ranks(self.accelerator)
        engine = engine or own_engine(args, engine_parts(self, self.tokenizer, self.ranks), note)
        check_engine_at_work(args, engine)
        self.sync = WeightSync(engine, Path(args.output_dir) / "sync", self.ranks)
        self.collector = RolloutCollector(engine, pool, args, self.ranks)
        self.branches = BranchPlan(args, self.ranks, lambda: self.kept("branches"))
        play = self.push_weights, self.play_tasks, self.branches
        self.batches = GenerationBatches(args, self.tasks, self.collector, self.ranks, *play)
        replays = args.zero_signal_groups == "replay"
        self.replay = ReplayBuffer(args.num_generations, args.replay_max_age) if replays else None
        self.rollout_sink = rollout_sink
        self.reports = Reports(
            self.ranks, self.collector, self.record_metric, lambda: self.rollout_sink
        )
        self._prepare_loss(token_sink)
        self.failures = FailureReport(self.ranks)
        # A teacher has something to say about groups without signal too.
        least = 0.0 if args.teacher_model else args.min_signal_share
        self.low_signal = LowSignalCallback(
            least, args.min_signal_patience, lambda: self.kept("low_signal")
        )
        self.add_callback(self.low_signal)
        self.add_callback(self.sample)
        if not self.is_deepspeed_enabled:  # it steps within the backward pass
            self.add_callback(UpdateSize(self.record_metric))
        self._before_update = 0
        self._of_later_updates: list[TrainRollout] = []

    def _prepare_loss(self, token_sink: TokenSink | None) -> None:
        args = self.args
        self.sample = TokenSample(token_sink, self.ranks.rank, args)
        scorer = Scorer(self.accelerator, self.ranks, self.tokenizer.pad_token_id, args)
        self.loss = MicroBatchLoss(scorer, args, self.sample)
        self.passes: list[Pass] = []
        if args.beta:
            self.passes += [reference_pass(scorer, lambda: self.model, self.ref_model)]
        if args.teacher_model is not None:
            self.passes += [teacher_pass(args, scorer, self.tokenizer, self.model.dtype)]
        entry, kept = find_estimator(args.advantage_estimator), lambda: self.kept("critic")
        choices = ChoiceScorer(scorer, self.ranks, args.temperature)
        self.choices = choices if entry.reads_choices else None
        self.critic = Critic(scorer, self.accelerator, kept) if entry.reads_values else None
        gradients = Gradients(self.accelerator)
        self.update = Update(self.loss, gradients, args.gradient_accumulation_steps)

    def train(self, *args: Any, **options: Any) -> Any:
        """Train as transformers does, and end the playing however training ends."""
        try:
            return super().train(*args, **options)
        finally:
            self.batches.end()

    # -- a training step: rollouts and their advantages -----------------------------------------

    def generate_rollouts(self) -> list[TrainRollout]:
        """Play this rank's rollouts of the next generation and assign credit."""
        started = time.perf_counter()
        args, step = self.args, self.state.global_step
        number = step // args.updates_per_generation
        requests, rollouts = self.batches.next(step, self.state.max_steps)
        advantages = self._credit(rollouts)
        figures: dict[str, float] = {}
        if isinstance(self.tasks, Curriculum):
            figures |= self.tasks.learn(number, advantages.groups_with_signal)
        rounds = args.max_resample_rounds if args.zero_signal_groups == "resample" else 0
        for round_ in range(rounds):
            if advantages.share_with_signal == 1.0:
                break
            rollouts = self._resample(requests, rollouts, advantages.signal, round_)
            advantages = self._credit(rollouts)
        seconds = time.perf_counter() - started
        if self.failures.report(rollouts, "train", step):
            self.reports.hand_over(rollouts, "train", step)
            self.failures.stop(rollouts, step)
        if self.critic is not None:
            figures |= self.critic.learn(advantages.returns)
        trained = advantages.train_rollouts()
        self.sample.choose(trained, step)
        if self.replay is not None:
            trained, ages = self.replay.fill(trained, number)
            figures |= self._replayed(ages)
        self.low_signal.update(advantages.share_with_signal)
        figures |= {"time/rollouts": seconds} | self.batches.figures(rollouts, step)
        figures |= self.branches.learn(rollouts)
        self.reports.generation(rollouts, step, advantages, figures)
        for each in self.passes:
            each.run(trained)
        return trained

    def push_weights(self, version: int) -> None:
        """Let the engine sample from the current weights; rollouts will record `version`, an
        optimizer step. Sessions that are being played ahead go on with them. All ranks must call
        it, and if it raises on one rank, every rank raises."""
        model = self.accelerator.unwrap_model(self.model)
        source = self.collector.source
        self.collector.await_engine()
        metrics = self.ranks.together(lambda: self.sync.push(model, version, source))
        for name, value in metrics.items():
            self.record_metric(name, value)

    def _credit(self, rollouts: Sequence[Rollout]) -> GenerationAdvantages:
        choices = self.choices.choices_of(rollouts, self.model) if self.choices else ()
        values = self.critic.values_of(rollouts, self.model) if self.critic else ()
        return GenerationAdvantages(rollouts, self.args, self.ranks, choices, values)

    def _resample(
        self, requests: list[RolloutRequest], rollouts: list[Rollout], signal: Any, round_: int
    ) -> list[Rollout]:
        """Play another task in each group without signal."""
        step = self.state.global_step
        again = [i for i in range(len(requests)) if not signal[i]]
        for i in again:
            requests[i] = self.collector.other_task(requests[i], self.tasks, step, round_)
        played = self.play_tasks([requests[i] for i in again], step)
        fresh = dict(zip(again, played, strict=True))
        return [fresh.get(i, old) for i, old in enumerate(rollouts)]

    def _replayed(self, ages: list[int]) -> dict[str, float]:
        """Figures of the groups of these ages that take the place of groups without signal."""
        every, size = self.ranks.gather(ages), self.args.generation_batch_size
        share = {"replay/share": len(every) * self.args.num_generations / size}
        return share | ({"replay/age": sum(every) / len(every)} if every else {})

    # -- its loss weights -----------------------------------------------------------------------

    def weigh_rollouts(self, micro_batches: Sequence[list[TrainRollout]]) -> None:
        """Fix the loss weights of each optimizer step, counted over all ranks. A group's rollouts
        come together in its micro-batches, because rows in one forward pass can share prefixes."""
        size = self.args.gradient_accumulation_steps
        streams = streams_of(LOSSES[self.args.loss_type].divisor)
        for start in range(0, len(micro_batches), size):
            window = micro_batches[start : start + size]
            rollouts = sorted(chain(*window), key=lambda rollout: rollout.played.group)
            remaining = iter(rollouts)
            for batch in window:
                batch[:] = islice(remaining, len(batch))
            assign_weights(rollouts, streams, self.ranks.gather, self.args.norm_tokens or 0)
        self._before_update = size
        self._of_later_updates = list(chain(*micro_batches[size:]))

    # -- its loss -------------------------------------------------------------------------------

    def train_micro_batch(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> torch.Tensor:
        """Add the gradients of one micro-batch and log its figures."""
        started = time.perf_counter()
        layouts, loss, metrics = self.update.learn(model, rollouts)
        for name, value in mean_of_sums(self.ranks.gather(metrics)).items():
            self.record_metric(name, value)
        self._record_tokens(layouts)
        self._before_update -= 1
        if self._before_update == 0 and self._of_later_updates:
            self.loss.fill_old(self._of_later_updates, model)
        self.record_metric("time/update", time.perf_counter() - started)
        # The logged loss is the mean over ranks of what they return; ours is their sum.
        return loss * self.ranks.world_size

    def _record_tokens(self, layouts: Sequence[Layout]) -> None:
        """Log how many tokens the micro-batch's passes read, and how many distinct ones there
        are."""
        rows = [row for layout in layouts for row in layout.rows]
        counts = sum(layout.tokens for layout in layouts), distinct_tokens(rows)
        names = ("tokens_read", "distinct_tokens")
        for name, column in zip(names, zip(*self.ranks.gather([counts]), strict=True), strict=True):
            self.record_metric(name, float(sum(column)))

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
        sets = chosen_sets(eval_dataset, self.eval_dataset, self.collector.envs)
        if not isinstance(sets, Mapping):
            return self._play_set(sets, metric_key_prefix)
        metrics: dict[str, float] = {}
        for name, tasks in sets.items():
            metrics |= self._play_set(tasks, f"{metric_key_prefix}_{name}", name)
        return metrics

    def _play_set(self, tasks: Any, prefix: str, name: str = "") -> dict[str, float]:
        started = time.perf_counter()
        training = self.model.training
        self.model.eval()
        step, requests = self.state.global_step, self.collector.eval_requests(tasks)
        rollouts = self.play(requests, step, self.collector.eval_sampling)
        self.failures.report(rollouts, "eval", step)
        values = self.reports.figures(rollouts)
        metrics = {f"{prefix}_{key}": value for key, value in values.items()}
        metrics = with_metric(self.args, metrics, prefix)
        metrics[f"{prefix}_runtime"] = time.perf_counter() - started
        self.reports.hand_over(rollouts, "eval", step, dataset=name)
        self.log(dict(metrics))
        self.model.train(training)
        self.report_evaluation(metrics)
        return metrics

    def play(
        self, requests: Sequence[RolloutRequest], step: int, sampling: SamplingParams
    ) -> list[Rollout]:
        """Play these with the current weights, those after optimizer step `step`. All ranks must
        call it, each with its own requests."""
        self.push_weights(step)
        return self.ranks.together(lambda: self.collector.play(requests, sampling))

    def play_tasks(self, requests: Sequence[RolloutRequest], step: int) -> list[Rollout]:
        """Play training rollouts, the trunks and then their branches."""
        sampling = self.collector.train_sampling
        return self.branches.play(requests, lambda some: self.play(some, step, sampling))

    def save_rollouts(self, checkpoint: Path) -> None:
        """Save this rank's groups for replay."""
        if self.replay is not None:
            checkpoint.mkdir(parents=True, exist_ok=True)
            self.replay.save(checkpoint / f"replay_{self.ranks.rank}.pt")

    def load_rollouts(self, checkpoint: Path) -> None:
        """Load what `save_rollouts` saved."""
        if self.replay is not None:
            self.replay.load(checkpoint / f"replay_{self.ranks.rank}.pt")

    def best_model_loaded(self) -> None:
        """Let the engine read the weights again, although there was no optimizer step."""
        self.sync.forget()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, and warn if the cap on the sampler's ratio is reached often."""
        capped = self.recorded_metric("sampler/capped_rows")
        warn_of_capped_rows(capped, self.args.sampler_cap, self.model)
        super().log(logs, start_time)
