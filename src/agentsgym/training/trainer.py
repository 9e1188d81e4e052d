"""GRPOEnvTrainer: TRL's GRPOTrainer, trained on what agents do in environments.

TRL keeps data loading, models, PEFT, the reference model, optimiser, logging and checkpoints. We
replace generation (`_generate_and_score_completions`), the loss (`_compute_loss`) and evaluation,
and call none of their base methods. The unit that TRL shuffles and splits is a rollout.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache
from torch import nn

from agentsgym.credit.table import Floats
from agentsgym.envs import EnvPool, MultistepEnv, check_rows
from agentsgym.evaluation.metrics import record, summarise
from agentsgym.rollout import Place
from agentsgym.training.advantages import Assignment
from agentsgym.training.best import check_metric, with_metric
from agentsgym.training.chat_templates import tell_about, template_options
from agentsgym.training.checkpoints import CheckpointingTrainer
from agentsgym.training.completions import completion_lines
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.datasets import (
    check_training_set,
    chosen_sets,
    evaluation_sets,
    refuse_bad_rows,
    stream_tasks,
)
from agentsgym.training.engines import own_engine
from agentsgym.training.gradients import Gradients
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.loss.objective import ChunkLoss, Sums, chunk_loss, settings_of
from agentsgym.training.loss.samples import TrainRollout, TrainRow
from agentsgym.training.loss.weights import assign_weights, count, total
from agentsgym.training.metrics import mean_of_sums
from agentsgym.training.ranks import Ranks
from agentsgym.training.reference import check_reference, reference_adapter
from agentsgym.training.rollouts.collector import Player
from agentsgym.training.rollouts.failures import Failures
from agentsgym.training.rollouts.sampler import TaskSampler
from agentsgym.training.rollouts.staleness import age
from agentsgym.training.rollouts.task_stream import TaskStream
from agentsgym.training.rollouts.weight_sync import WeightSync
from agentsgym.training.rollouts.zero_variance import SignalWatch
from agentsgym.training.trl_settings import refuse_arguments
from agentsgym.types import Rollout, TrainableEngine, trainable

logger = logging.getLogger(__name__)

RolloutSink = Callable[[Sequence[Rollout], Mapping[str, Any]], None]
"""Receives the rollouts of each generation and evaluation of its rank, with `{"phase": "train" |
"eval", "step": global step, "advantages": per row of the rollouts, or None}`, and of one of
several evaluation sets `"dataset"`, its name."""

# Share of rows in which a cap bites from which on a warning is due.
_MANY_CAPPED = 0.1
_DROPOUT_HINT = "; the model's dropout makes them differ: set disable_dropout=True"


class GRPOEnvTrainer(CheckpointingTrainer):
    """GRPO on multi-turn environments.

    Args:
        model: a Hugging Face causal language model, or its name or directory.
        args: a `GRPOEnvConfig`.
        train_dataset: rows `{"env_class_path", "env_config", "task_data"}`; environments may be
            mixed.
            An iterable (`datasets.IterableDataset`) is read as it is needed; `max_steps` then
            says how long training lasts.
        eval_dataset: rows of the same kind, a dict of several such sets by name, or None; an
            iterable is read once, at the beginning.
        processing_class: the tokenizer (taken from the model's directory if None).
        engine: a `TrainableEngine` that samples the actions; None makes the one that `args` ask
            for (docs/engines.md has the table).
        rollout_sink: receives every rollout that is played.
        envs: environment objects that play the rows of their class and config; what a
            configuration does not tell (an answerer of its own) only they have.
        **trl: `callbacks`, `optimizers`, `peft_config`, `quantization_config` as TRL takes them.

    Raises ValueError for a dataset that is too small for one generation, and ConfigError, one,
    naming the rows that are not in the row schema or whose environment cannot be made; TypeError
    naming what an engine lacks.
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
        envs: Iterable[MultistepEnv] = (),
        **trl: Any,
    ) -> None:
        refuse_arguments(trl)
        if engine is not None:
            trainable(engine)
        args = args or GRPOEnvConfig(output_dir="agentsgym-grpo")
        if not isinstance(args, GRPOEnvConfig):
            raise TypeError(f"args must be a GRPOEnvConfig, got {type(args).__name__}")
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
        rendering = template_options(self._tokenizer, args.chat_template, self.chat_template_kwargs)
        if self.accelerator.is_main_process:
            tell_about(self._tokenizer, rendering)
        pool = EnvPool(
            self._tokenizer,
            args.allow_imports,
            envs,
            allow_paths=args.allow_paths,
            template_options=rendering,
        )
        self.train_dataset = stream_tasks(
            train_dataset, args, self.shuffle_dataset, self._problem_of
        )
        refuse_bad_rows("train_dataset", self.train_dataset, pool)
        refuse_bad_rows("eval_dataset", self.eval_dataset, pool)
        self.rollout_sink = rollout_sink
        self.ranks = Ranks(self.accelerator)
        engine = engine or own_engine(self, self.ranks)
        if args.generate_ahead and not engine.can_generate_ahead:
            raise ValueError(
                f"generate_ahead needs an engine with a copy of the weights, which "
                f"{type(engine).__name__} has not: name vLLM servers in engine_urls"
            )
        self.sync = WeightSync(engine, Path(args.output_dir) / "sync", self.ranks)
        self.player = Player(engine, pool, args, self.ranks, self._push_weights)
        self.scorer = Scorer(
            self.accelerator,
            self.ranks,
            self._tokenizer.pad_token_id,
            args.max_tokens_per_forward,
            args.pad_to_multiple_of,
        )
        self._tokens_read = 0
        self.gradients = Gradients(self.accelerator)
        self.objective = settings_of(
            args, self.epsilon_low, self.epsilon_high, self.router_aux_loss_coef
        )
        self.signal = SignalWatch(args.min_signal_share, args.min_signal_patience)
        self.add_callback(self.signal)
        self.failures = Failures(self.ranks)

    def _push_weights(self, version: int) -> None:
        self.sync.push(self.accelerator.unwrap_model(self.model), version)

    # -- data -----------------------------------------------------------------------------------

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = ["env_class_path", "env_config", "task_data"]

    def _problem_of(self, row: Any) -> str | None:
        """What is wrong with a row that was drawn from a stream, or None."""
        found = check_rows([row], self.player.envs)
        return found[0].partition(": ")[2] if found else None

    def _get_train_sampler(self, dataset: Any = None) -> TaskSampler:
        data = self.train_dataset if dataset is None else dataset
        return TaskSampler(
            len(data),
            group_size=self.num_generations,
            tasks=self.args.generation_batch_size // self.num_generations,
            repeats=self.num_iterations * self.args.steps_per_generation,
            seed=self.args.seed if self.args.data_seed is None else self.args.data_seed,
            epoch=lambda: int((self.state.epoch or 0.0) + 1e-6),
            shuffle=self.shuffle_dataset,
        )

    # -- generation -----------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's buffering; loss weights are fixed when a generation has been split."""
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is not None and self._buffered_inputs is not before:
            self._weigh(self._buffered_inputs)
        return inputs

    def _generate_and_score_completions(
        self, inputs: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Play one rollout per input row and assign credit.

        Returns `rollout_index`, an int64 tensor of shape (B,), and `rollouts`, a list of B
        `TrainRollout`s; TRL shuffles and splits both together.
        """
        started = time.perf_counter()
        step = self.state.global_step
        places = self.player.train_places(inputs, step)
        rollouts = self._play(places)
        assignment = Assignment(rollouts, self.args, self.ranks)
        for round_ in range(self._resample_rounds()):
            if assignment.share_with_signal == 1.0:
                break
            rollouts = self._resample(places, rollouts, assignment.signal, round_)
            assignment = Assignment(rollouts, self.args, self.ranks)
        played = time.perf_counter() - started
        if self.failures.tell(rollouts, "train", step):
            self._report(rollouts, "train", None)
            self.failures.stop(rollouts, step)
        trained = assignment.train_rollouts()
        self._fill_logps(trained)
        self._log_generation(rollouts, assignment.share_with_signal, played)
        if self.args.log_completions:
            self._log_completions(rollouts, assignment.of_rows())
        self._report(rollouts, "train", assignment.of_rows())
        self._play_ahead(len(places))
        index = torch.arange(len(trained), device=self.accelerator.device)
        return {"rollout_index": index, "rollouts": trained}

    def _play(self, places: Sequence[Place]) -> list[Rollout]:
        step = self.state.global_step
        return self.ranks.together(lambda: self.player.train(places, step))

    def _play_ahead(self, size: int) -> None:
        """Begin with this rank's `size` places of the next generation, where there is one."""
        args = self.args
        number = self.state.global_step // args.steps_per_window + 1
        step = number * args.steps_per_window
        if not args.generate_ahead or step >= self.state.max_steps:
            return
        indices = self._get_train_sampler().generation(number)
        rows = [self.train_dataset[i] for i in indices[self.ranks.slice(size)]]
        self.player.train_ahead(self.player.train_places(rows, step))

    def _resample_rounds(self) -> int:
        rounds: int = self.args.max_resample_rounds
        return rounds if self.args.zero_signal_groups == "resample" else 0

    def _resample(
        self, places: list[Place], rollouts: list[Rollout], signal: Any, round_: int
    ) -> list[Rollout]:
        """Play another task in each group without signal."""
        step = self.state.global_step
        again = [i for i in range(len(places)) if not signal[i]]
        for i in again:
            places[i] = self.player.other_task(places[i], self.train_dataset, step, round_)
        fresh = dict(zip(again, self._play([places[i] for i in again]), strict=True))
        return [fresh.get(i, old) for i, old in enumerate(rollouts)]

    def _weigh(self, micro_batches: Sequence[Mapping[str, Any]]) -> None:
        """Fix the loss weights of each optimiser window, counted over all ranks."""
        size = self.args.gradient_accumulation_steps
        for start in range(0, len(micro_batches), size):
            window = [r for b in micro_batches[start : start + size] for r in b["rollouts"]]
            counts = total(self.ranks.gather([count(window)]))
            assign_weights(window, counts, self.args.loss_type, self.args.norm_tokens)

    # -- log-probabilities ----------------------------------------------------------------------

    def _fill_logps(self, rollouts: Sequence[TrainRollout]) -> None:
        """Log-probabilities before any update, where this generation feeds several of them, and
        those of the reference model, where KL needs them."""
        rows = [row for rollout in rollouts for row in rollout.rows]
        if self.args.steps_per_window > 1:
            for row, logps in self.scorer.logps_of(rows, self.model):
                row.old_logps = logps
        if self.beta != 0.0:
            for row, logps in self._reference_logps(rows):
                row.ref_logps = logps

    def _reference_logps(self, rows: Sequence[TrainRow]) -> list[tuple[TrainRow, torch.Tensor]]:
        if self.ref_model is not None:
            return self.scorer.logps_of(rows, self.ref_model)
        with reference_adapter(self.accelerator.unwrap_model(self.model)):
            return self.scorer.logps_of(rows, self.model)

    # -- the loss -------------------------------------------------------------------------------

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """One micro-batch: a backward pass per chunk, so that memory is bounded by the largest.

        Our weights are final, so nothing is divided by the accumulation steps, and data-parallel
        averaging over ranks is undone.
        """
        model.train()
        inputs = self._prepare_inputs(inputs)
        started = time.perf_counter()
        chunks = self._chunks(model, inputs["rollouts"])
        padding = self.args.include_num_input_tokens_seen != "non_padding"
        self._tokens_read = self.scorer.tokens_read(chunks, padding=padding)
        loss = torch.zeros((), device=self.accelerator.device)
        metrics = []
        for number, rows in enumerate(chunks):
            with self.gradients.exchanged(model, last=number == len(chunks) - 1):
                part = self._chunk_loss(model, rows)
                self.gradients.backward(part.loss * self.ranks.number)
            loss += part.loss.detach()
            metrics.append(part.metrics)
        self._record_means(metrics)
        every = self.args.torch_empty_cache_steps
        if every is not None and self.state.global_step % every == 0:
            clear_device_cache()
        self._step += 1
        self._metrics["train"]["time/update"].append(time.perf_counter() - started)
        # The logged loss is the mean over ranks of what they return; ours is their sum.
        return loss * self.ranks.number

    def _compute_loss(self, model: nn.Module, inputs: Mapping[str, Any]) -> torch.Tensor:
        """The loss of a micro-batch, Σ weight·ℓ over its chunks, on one graph."""
        chunks = self._chunks(model, inputs["rollouts"])
        parts = [self._chunk_loss(model, rows) for rows in chunks]
        self._record_means([part.metrics for part in parts])
        return torch.stack([part.loss for part in parts]).sum()

    def _chunks(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> list[list[TrainRow]]:
        """Rows of the rollouts in forward chunks, as many on every rank."""
        rows = [row for rollout in rollouts if rollout.live for row in rollout.rows]
        if self.objective.needs_rollout_ratio and self.args.steps_per_window > 1:
            self._fill_rollout_ratios(model, rollouts)
        fillers = [row for rollout in rollouts for row in rollout.rows]
        return self.scorer.chunks(rows, fillers)

    def _fill_rollout_ratios(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> None:
        """The log-ratio of whole rollouts, whose rows may lie in several chunks."""
        rows = [row for rollout in rollouts for row in rollout.rows]
        now = {id(row): logps for row, logps in self.scorer.logps_of(rows, model)}
        for rollout in rollouts:
            summed = 0.0
            for row in rollout.rows:
                assert row.old_logps is not None
                mask = torch.tensor(row.row.agent_token_mask, device=now[id(row)].device)
                summed += float(((now[id(row)] - row.old_logps) * mask).sum())
            for row in rollout.rows:
                row.rollout_log_ratio = (summed, rollout.agent_tokens)

    def _chunk_loss(self, model: nn.Module, rows: Sequence[TrainRow]) -> ChunkLoss:
        scores = self.scorer.forward(model, rows, aux_loss=self.aux_loss_enabled)
        return chunk_loss(
            scores.logps, scores.entropy, scores.chunk, self.objective, scores.aux_loss
        )

    def _track_num_input_tokens(self, inputs: Any) -> None:
        """Count the tokens of the micro-batch, those of other ranks included."""
        if self.args.include_num_input_tokens_seen != "no":
            self.state.num_input_tokens_seen += sum(self.ranks.gather([self._tokens_read]))

    def _record_means(self, parts: Sequence[Sums]) -> None:
        """Log the means of a micro-batch over all its tokens, those of other ranks included."""
        for name, value in mean_of_sums(self.ranks.gather(list(parts))).items():
            self._metrics["train"][name].append(value)

    # -- evaluation -----------------------------------------------------------------------------

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Play the evaluation tasks with the evaluation's own sampling; no loss is computed.

        `eval_dataset` is None for the trainer's own, the name of one of several, or other rows.
        Returns and logs the metrics of `evaluation.metrics.summarise` under the prefix; of a dict
        of sets each under the prefix and its name.
        """
        data = chosen_sets(eval_dataset, self.eval_dataset, self.player.envs)
        if not isinstance(data, Mapping):
            return self._evaluate_tasks(data, metric_key_prefix)
        metrics: dict[str, float] = {}
        for name, tasks in data.items():
            metrics |= self._evaluate_tasks(tasks, f"{metric_key_prefix}_{name}", name)
        return metrics

    def _evaluate_tasks(self, tasks: Any, prefix: str, name: str = "") -> dict[str, float]:
        started = time.perf_counter()
        training = self.model.training
        self.model.eval()
        step, places = self.state.global_step, self.player.eval_places(tasks, name)
        rollouts = self.ranks.together(lambda: self.player.evaluate(places, step))
        self.failures.tell(rollouts, "eval", step)
        values = self._figures(rollouts)
        metrics = {f"{prefix}_{key}": value for key, value in values.items()}
        metrics = with_metric(self.args, metrics, prefix)
        metrics[f"{prefix}_runtime"] = time.perf_counter() - started
        self._report(rollouts, "eval", None, name)
        self.log(dict(metrics))
        self.model.train(training)
        control = getattr(self, "control", None)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, control, metrics)
        return metrics

    def predict(self, *_: Any, **__: Any) -> Any:
        """Not offered: there are no labels and no single prediction per row."""
        raise NotImplementedError(
            "an environment has no predictions to return; trainer.evaluate(tasks) plays tasks, and "
            "rollout_sink receives what was played"
        )

    # -- logs and checkpoints -------------------------------------------------------------------

    def _log_generation(self, rollouts: Sequence[Rollout], signal: float, seconds: float) -> None:
        values = self._figures(rollouts) | {
            "groups_without_signal": 1.0 - signal,
            "time/rollouts": seconds,
            "occupancy": self.player.engine.stats.occupancy,
        }
        if isinstance(self.train_dataset, TaskStream):
            values["bad_rows"] = self.train_dataset.bad
        if self.player.engine.can_generate_ahead:
            window, step = self.args.steps_per_window, self.state.global_step
            ages = self.ranks.gather([age(rollout, step, window) for rollout in rollouts])
            values["staleness"] = sum(ages) / len(ages)
        for name, value in values.items():
            if not math.isnan(value):
                self._metrics["train"][name].append(value)
        self.signal.update(signal)

    def _figures(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Figures of all ranks' rollouts; each environment's own, too, where rows name several."""
        records = self.ranks.gather([record(rollout) for rollout in rollouts])
        return summarise(records, per_environment=len(self.player.envs.names) > 1)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, and warn where the cap on the sampler's ratio bites often."""
        capped = self._metrics["train"].get("sampler/capped_rows", [])
        if capped and sum(capped) / len(capped) > _MANY_CAPPED:
            logger.warning(
                "the engine's probabilities differ from the trainer's: sampler_cap=%s bites in "
                "%.0f %% of the rows%s",
                self.args.sampler_cap,
                100 * sum(capped) / len(capped),
                _DROPOUT_HINT if _has_dropout(self.model) else "",
            )
        # TRL writes its tables with every entry; those of evaluations would show training's again.
        self.log_completions = self.args.log_completions and self.model.training
        super().log(logs, start_time)

    def _log_completions(self, rollouts: Sequence[Rollout], advantages: Sequence[Floats]) -> None:
        """Fill the table that TRL prints, saves and hands to trackers (`log_completions`)."""
        for line in self.ranks.gather(completion_lines(rollouts, advantages)):
            self._logs["prompt"].append(line.prompt)
            self._logs["completion"].append(line.completion)
            self._logs["rewards"]["reward"].append(line.reward)
            self._logs["advantages"].append(line.advantage)

    def _report(
        self,
        rollouts: Sequence[Rollout],
        phase: str,
        advantages: Sequence[Floats] | None,
        name: str = "",
    ) -> None:
        if self.rollout_sink is not None:
            info = {"phase": phase, "step": self.state.global_step, "advantages": advantages}
            if name:
                info["dataset"] = name
            sink = self.rollout_sink
            self.ranks.together(lambda: sink(rollouts, info))


def _has_dropout(model: nn.Module) -> bool:
    return any(isinstance(part, nn.Dropout) and part.p > 0 for part in model.modules())


def _rewards_come_from_environments(**_: Any) -> list[float]:
    raise RuntimeError("rewards come from the environments; TRL must not ask for them")
