"""The trainer's rollouts: environments, an engine with the policy's weights, evaluation."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.evaluation.metrics import record, summarize
from agentsgym.training.best_model import check_metric, with_metric
from agentsgym.training.chat_templates import tell_about, template_options
from agentsgym.training.checkpoints import CheckpointingTrainer
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
from agentsgym.training.ranks import Ranks
from agentsgym.training.reference_model import check_reference
from agentsgym.training.setting_conditions import notes
from agentsgym.training.staleness import AheadPlayer, drop_stale
from agentsgym.training.stopping import FailureReport
from agentsgym.training.tasks import GenerationReader, TaskSampler, TaskStream
from agentsgym.training.tracker_tables import TrackerTables
from agentsgym.training.trl_settings import refuse_arguments
from agentsgym.types import Rollout, RolloutRequest, TrainableEngine
from agentsgym.types.records import Floats

logger = logging.getLogger(__name__)

RolloutSink = Callable[[Sequence[Rollout], Mapping[str, Any]], None]
"""Receives this rank's rollouts of each generation and evaluation, with `{"phase": "train" |
"eval", "step": global step, "rank": of this process, "advantages": per row of the rollouts, or
None}`, and `"dataset"`, the name of the evaluation set, if there are several."""


class PlayingTrainer(CheckpointingTrainer):
    """TRL's trainer with environments: it plays training rollouts and evaluations.

    Weights flow one way: `push_weights` passes them to the engine, then rollouts are requested.
    """

    def __init__(
        self,
        *,
        model: Any,
        args: GRPOEnvConfig | None,
        train_dataset: Any,
        eval_dataset: Any,
        processing_class: Any,
        engine: TrainableEngine | None,
        rollout_sink: RolloutSink | None,
        envs: Iterable[MultistepEnv],
        note: Note,
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
        engine = engine or own_engine(self, self.ranks, note)
        check_ray(args, engine)
        check_ahead(args, engine)
        self.sync = WeightSync(engine, Path(args.output_dir) / "sync", self.ranks)
        self.collector = RolloutCollector(engine, pool, args, self.ranks)
        self._ahead: AheadPlayer | None = None
        streamed = isinstance(self.train_dataset, TaskStream)
        self._stream = GenerationReader(self.train_dataset) if streamed else None
        self.failures = FailureReport(self.ranks)
        self.tables = TrackerTables(
            args.report_to, args.tracked_rollouts, lambda: self.tensorboard_writer
        )
        self.add_callback(self.tables)

    def _make_pool(self, envs: Iterable[MultistepEnv]) -> EnvPool:
        args = self.args
        rendering = template_options(self.tokenizer, args.chat_template, self.chat_template_kwargs)
        if self.accelerator.is_main_process:
            tell_about(self.tokenizer, rendering)
            for sentence in notes(args):
                logger.warning("%s.", sentence)
        return EnvPool(
            self.tokenizer,
            args.trust,
            envs,
            template_options=rendering,
        )

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

    # -- training rollouts ----------------------------------------------------------------------

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

    def next_batch(
        self, inputs: Sequence[Mapping[str, Any]]
    ) -> tuple[list[RolloutRequest], list[Rollout]]:
        """The requests and rollouts of this step's batch: of the rows in `inputs`, or, where
        generations are played ahead, of the generation of this step. All ranks must call it."""
        step = self.state.global_step
        if self.args.max_staleness:
            return self._next_ahead(step)
        requests = self.collector.train_requests(inputs, step)
        return requests, self.collect(requests)

    def _next_ahead(self, step: int) -> tuple[list[RolloutRequest], list[Rollout]]:
        updates, most = self.args.updates_per_generation, self.args.max_staleness
        generation = step // updates
        player = self.ranks.together(lambda: self._player_ahead(generation))
        self.push_weights(step)
        requests, rollouts = self.ranks.together(lambda: player.batch(generation))
        return requests, drop_stale(rollouts, step, updates, most)

    def _player_ahead(self, generation: int) -> AheadPlayer:
        """The player of a training that begins or continues with this generation."""
        if self._ahead is None:
            self._ahead = AheadPlayer(
                self.collector.source or self.collector.open_source(),
                self._requests_of_generation,
                first=generation,
                last=(self.state.max_steps - 1) // self.args.updates_per_generation,
                ahead=self.args.max_staleness,
            )
        return self._ahead

    def _requests_of_generation(self, number: int) -> list[RolloutRequest]:
        """This rank's requests of a generation, with the noise that they have where nothing is
        played ahead. Groups are numbered over all generations, as several are open at once."""
        step, size = number * self.args.updates_per_generation, tasks_per_generation(self.args)
        if self._stream is not None:
            rows = [row for row in self._stream.rows(number) for _ in range(self.num_generations)]
        else:
            tasks = self.task_sampler(self.train_dataset).generation(number)
            rows = [self.train_dataset[task] for task in tasks]
        rows = rows[self.ranks.slice(len(rows) // self.ranks.number)]
        return self.collector.train_requests(rows, step, first_group=number * size)

    def ahead_figures(self) -> dict[str, float]:
        """How the learner and the sampler waited for each other, by metric; means over ranks. Empty
        where nothing is played ahead, and at the first batch. All ranks must call it."""
        if self._ahead is None:
            return {}
        every = self.ranks.gather([self._ahead.figures])
        return {name: sum(of[name] for of in every) / len(every) for name in every[0]}

    def collect(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """Training rollouts of these requests, played now with the current weights. All ranks must
        call it."""
        self.push_weights(self.state.global_step)
        return self.ranks.together(lambda: self.collector.train(requests))

    def train(self, *args: Any, **options: Any) -> Any:
        """Train as transformers does, and end the playing however training ends."""
        if self._stream is not None:
            self.train_dataset.by_number = self.args.max_staleness > 0
        try:
            return super().train(*args, **options)
        finally:
            self.collector.close_source()
            self._ahead = None

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
        """Pass rollouts to the trackers' tables, and to the sink if there is one."""
        info = {
            "phase": phase,
            "step": self.state.global_step,
            "rank": self.ranks.index,
            "advantages": advantages,
        }
        if name:
            info["dataset"] = name
        self.tables.keep(rollouts, info)
        if self.rollout_sink is not None:
            sink = self.rollout_sink
            self.ranks.together(lambda: sink(rollouts, info))


def _rewards_come_from_environments(**_: Any) -> list[float]:
    raise RuntimeError("rewards come from the environments; TRL must not request them")
