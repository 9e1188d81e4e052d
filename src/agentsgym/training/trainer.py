"""GRPOEnvTrainer: TRL's GRPOTrainer, trained on what agents do in environments.

TRL keeps data loading, models, PEFT, the reference model, optimiser, logging and checkpoints. We
replace generation (`_generate_and_score_completions`), the loss (`_compute_loss`) and evaluation,
and call none of their base methods. The unit that TRL shuffles and splits is a rollout.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from accelerate.utils import DistributedType, gather_object
from torch import nn
from trl import GRPOTrainer

from agentsgym.agents import DirectOutputAgent
from agentsgym.credit import concatenate, placed_rewards, spread, step_advantages, table_of
from agentsgym.credit.table import Floats, StepTable
from agentsgym.envs import EnvPool, check_row
from agentsgym.envs.trial import session_seed
from agentsgym.generation.embedded import EmbeddedEngine
from agentsgym.rollout import Place, play
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.losses import (
    LossSettings,
    clip_shares,
    clipped_policy_loss,
    kl_to_reference,
)
from agentsgym.training.metrics import RolloutRecord, record, summarise
from agentsgym.training.sampler import TaskSampler
from agentsgym.training.samples import (
    Chunk,
    TrainRollout,
    TrainRow,
    WindowCounts,
    assign_weights,
    collate,
    count,
    make_rollouts,
    pack,
)
from agentsgym.training.signal import SignalWatch
from agentsgym.types import Engine, Rollout, SamplingParams

RolloutSink = Callable[[Sequence[Rollout], Mapping[str, Any]], None]
"""Receives the rollouts of each generation and evaluation on the main process, with
`{"phase": "train" | "eval", "step": global step, "advantages": per row or None}`."""


class GRPOEnvTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPO on multi-turn environments.

    Args:
        model: a Hugging Face causal language model, or its name or directory.
        args: a `GRPOEnvConfig`.
        train_dataset: rows `{"env_class_path", "env_config", "task_data"}`; environments may be
            mixed.
        eval_dataset: rows of the same kind, or None.
        processing_class: the tokenizer (taken from the model's directory if None).
        engine: what samples the actions; None makes an `EmbeddedEngine` on the trained model.
        rollout_sink: receives every rollout that is played.
        **trl: `callbacks`, `optimizers`, `peft_config`, `quantization_config` as TRL takes them.

    Raises ValueError for a dataset that is not in the row schema or too small for one generation,
    and `ConfigError` or `UnknownEnvironment` for an environment that cannot be made.
    """

    def __init__(
        self,
        model: Any,
        args: GRPOEnvConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        *,
        engine: Engine | None = None,
        rollout_sink: RolloutSink | None = None,
        **trl: Any,
    ) -> None:
        args = args or GRPOEnvConfig(output_dir="agentsgym-grpo")
        _check_dataset(train_dataset, args)
        super().__init__(
            model=model,
            reward_funcs=_rewards_come_from_environments,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **trl,
        )
        self.envs = EnvPool(self._tokenizer, args.allow_imports)
        self.envs.get(check_row(train_dataset[0], 0))
        self.rollout_sink = rollout_sink
        self.engine = engine or EmbeddedEngine(
            self.accelerator.unwrap_model(self.model),
            self._tokenizer,
            capacity=args.engine_capacity,
            stop_token_ids=self.eos_token_ids,
        )
        self.loss_settings = LossSettings(
            self.epsilon_low,
            self.epsilon_high,
            args.delta,
            args.beta,
            args.entropy_coef,
            args.use_bias_correction_kl,
        )
        self.signal = SignalWatch(args.min_signal_share, args.min_signal_patience)
        self.add_callback(self.signal)

    # -- data -----------------------------------------------------------------------------------

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = ["env_class_path", "env_config", "task_data"]

    def _get_train_sampler(self, dataset: Any = None) -> TaskSampler:
        data = self.train_dataset if dataset is None else dataset
        return TaskSampler(
            len(data),
            group_size=self.num_generations,
            tasks=self.args.generation_batch_size // self.num_generations,
            repeats=self.num_iterations * self.args.steps_per_generation,
            seed=self.args.seed,
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
        places = self._places(inputs)
        rollouts = self._play(places, self._train_sampling())
        table, signal = self._credit_table(rollouts)
        for round_ in range(self._resample_rounds()):
            if signal.all():
                break
            rollouts = self._resample(places, rollouts, signal, round_)
            table, signal = self._credit_table(rollouts)
        played = time.perf_counter() - started
        trained = self._make_train_rollouts(rollouts, table, signal)
        self._fill_logps(trained)
        self._log_generation(rollouts, signal, played)
        self._report(rollouts, "train", [row.advantages for r in trained for row in r.rows])
        index = torch.arange(len(trained), device=self.accelerator.device)
        return {"rollout_index": index, "rollouts": trained}

    def _places(self, inputs: Sequence[Mapping[str, Any]]) -> list[Place]:
        """Global group and number of each local row: TRL repeats a task `num_generations` times
        over the ranks' slices, so a group may straddle ranks."""
        first = self.accelerator.process_index * len(inputs)
        places = []
        for offset, row in enumerate(inputs):
            group, index = divmod(first + offset, self.num_generations)
            seed = session_seed(self.args.seed, "train", self.state.global_step, group, index)
            places.append(Place(row, group, index, seed))
        return places

    def _play(self, places: Sequence[Place], sampling: SamplingParams) -> list[Rollout]:
        reset = getattr(self.engine, "reset", None)
        if reset is not None:
            reset()
        if hasattr(self.engine, "policy_version"):
            self.engine.policy_version = self.state.global_step
        return play(
            places,
            DirectOutputAgent(self.engine, sampling),
            self.envs,
            max_rollout_tokens=self.args.max_rollout_tokens,
        )

    def _train_sampling(self) -> SamplingParams:
        return SamplingParams(
            self.args.max_action_tokens,
            self.temperature,
            self.top_p,
            self.top_k,
            tuple(self.args.stop_strings),
        )

    # -- credit ---------------------------------------------------------------------------------

    def _credit_table(self, rollouts: Sequence[Rollout]) -> tuple[StepTable, Any]:
        """The step table of all ranks, and for each of its rollouts whether its group has signal."""
        local = table_of(rollouts)
        table = concatenate(self._gather([local]))
        return table, self._rollouts_with_signal(rollouts, table)

    def _rollouts_with_signal(self, rollouts: Sequence[Rollout], table: StepTable) -> Any:
        """Bool per rollout of the table: whether any advantage in its group differs from zero."""
        has = torch.zeros(len(table.group), dtype=torch.bool).numpy()
        if self.args.advantage_estimator == "reward":
            local = [any(any(row.per_token_rewards) for row in r.rows) for r in rollouts]
            has |= self._gather(local)
        else:
            per_step = self._step_advantages(table)
            has[table.rollout[abs(per_step) > 1e-12]] = True
        groups = set(table.group[has].tolist())
        return torch.tensor([group in groups for group in table.group.tolist()]).numpy()

    def _step_advantages(self, table: StepTable) -> Floats:
        return step_advantages(table, self.args.advantage_estimator, **self.args.estimator_options)

    def _make_train_rollouts(
        self, rollouts: Sequence[Rollout], table: StepTable, signal: Any
    ) -> list[TrainRollout]:
        rows = [row for rollout in rollouts for row in rollout.rows]
        if self.args.advantage_estimator == "reward":
            advantages = [placed_rewards(row) for row in rows]
        else:
            mine = self._local_steps(rollouts, table)
            advantages = spread(rollouts, self._step_advantages(table)[mine])
        drop = self.args.zero_signal_groups != "keep"
        here = signal[self._local_slice(len(rollouts))]
        live = [
            not rollout.failed and (bool(has) or not drop)
            for rollout, has in zip(rollouts, here, strict=True)
        ]
        return make_rollouts(rollouts, advantages, live)

    def _local_slice(self, size: int) -> slice:
        start = self.accelerator.process_index * size
        return slice(start, start + size)

    def _local_steps(self, rollouts: Sequence[Rollout], table: StepTable) -> Any:
        here = self._local_slice(len(rollouts))
        return (table.rollout >= here.start) & (table.rollout < here.stop)

    def _resample_rounds(self) -> int:
        return self.args.max_resample_rounds if self.args.zero_signal_groups == "resample" else 0

    def _resample(
        self, places: list[Place], rollouts: list[Rollout], signal: Any, round_: int
    ) -> list[Rollout]:
        """Play another task in each group without signal. Every rank draws the same tasks."""
        here = signal[self._local_slice(len(rollouts))]
        again = [i for i in range(len(places)) if not here[i]]
        for i in again:
            place = places[i]
            parts = (self.args.seed, "again", self.state.global_step, round_, place.group)
            row = self.train_dataset[session_seed(*parts) % len(self.train_dataset)]
            places[i] = Place(row, place.group, place.index, session_seed(*parts, place.index))
        fresh = iter(self._play([places[i] for i in again], self._train_sampling()))
        chosen = set(again)
        return [next(fresh) if i in chosen else old for i, old in enumerate(rollouts)]

    # -- loss weights ---------------------------------------------------------------------------

    def _weigh(self, micro_batches: Sequence[Mapping[str, Any]]) -> None:
        """Fix the loss weights of each optimiser window, counted over all ranks."""
        size = self.args.gradient_accumulation_steps
        for start in range(0, len(micro_batches), size):
            window = [r for b in micro_batches[start : start + size] for r in b["rollouts"]]
            counts = self._sum_counts(count(window))
            assign_weights(window, counts, self.args.loss_type, self.args.norm_tokens)

    def _sum_counts(self, local: WindowCounts) -> WindowCounts:
        parts = self._gather([local])
        return WindowCounts(
            sum(part.live_rollouts for part in parts), sum(part.agent_tokens for part in parts)
        )

    def _gather(self, values: list[Any]) -> list[Any]:
        """The lists of all ranks, joined in the order of ranks."""
        if self.accelerator.num_processes == 1:
            return values
        gathered: list[Any] = gather_object(values)
        return gathered

    # -- log-probabilities ----------------------------------------------------------------------

    def _fill_logps(self, rollouts: Sequence[TrainRollout]) -> None:
        """Log-probabilities before any update, where this generation feeds several of them, and
        those of the reference model, where KL needs them."""
        rows = [row for rollout in rollouts for row in rollout.rows]
        if self.args.steps_per_window > 1:
            for row, logps in self._logps_of(rows, self.model):
                row.old_logps = logps
        if self.beta != 0.0:
            for row, logps in self._reference_logps(rows):
                row.ref_logps = logps

    @torch.no_grad()
    def _logps_of(
        self, rows: Sequence[TrainRow], model: nn.Module
    ) -> list[tuple[TrainRow, torch.Tensor]]:
        """Each row with its log-probabilities, float tensors of shape (T,), 0 at position 0."""
        results = []
        chunks = self._even_chunks(pack(rows, self.args.max_tokens_per_forward), rows)
        for part in chunks:
            chunk = self._collate(part)
            logps, _ = self._forward(model, chunk)
            padded = nn.functional.pad(logps, (1, 0))
            results += [(row, padded[i, : row.length]) for i, row in enumerate(part)]
        return results

    def _reference_logps(self, rows: Sequence[TrainRow]) -> list[tuple[TrainRow, torch.Tensor]]:
        if self.ref_model is not None:
            return self._logps_of(rows, self.ref_model)
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self._logps_of(rows, self.model)

    def _forward(self, model: nn.Module, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probabilities and entropies (nats), shape (B, T-1), at the sampling temperature."""
        with self.accelerator.autocast():
            output = model(
                input_ids=chunk.input_ids,
                attention_mask=chunk.attention_mask,
                labels=chunk.labels,
                fused_lm_head=True,
            )
        return output.log_probs, output.entropy

    def _collate(self, rows: Sequence[TrainRow]) -> Chunk:
        dtype = torch.float64 if self.model.dtype == torch.float64 else torch.float32
        pad: int = self._tokenizer.pad_token_id
        return collate(rows, pad, self.accelerator.device, dtype)

    # -- the loss -------------------------------------------------------------------------------

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """One micro-batch: a backward pass per chunk, so that memory is bounded by the largest.

        Our weights are final, so nothing is divided by the accumulation steps; data-parallel
        averaging over ranks is undone.
        """
        started = time.perf_counter()
        model.train()
        inputs = self._prepare_inputs(inputs)
        chunks = self._chunks(inputs["rollouts"])
        total = torch.zeros((), device=self.accelerator.device)
        for number, rows in enumerate(chunks):
            with self._sync_context(model, last=number == len(chunks) - 1):
                loss = self._chunk_loss(model, rows)
                self._backward(loss * self.accelerator.num_processes)
            total += loss.detach()
        self._step += 1
        self._metrics["train"]["time/update"].append(time.perf_counter() - started)
        return total

    def _compute_loss(self, model: nn.Module, inputs: Mapping[str, Any]) -> torch.Tensor:
        """The loss of a micro-batch, Σ weight·ℓ over its chunks, on one graph."""
        losses = [self._chunk_loss(model, rows) for rows in self._chunks(inputs["rollouts"])]
        return torch.stack(losses).sum()

    def _chunks(self, rollouts: Sequence[TrainRollout]) -> list[list[TrainRow]]:
        """Rows of the rollouts in forward chunks, as many on every rank."""
        rows = [row for rollout in rollouts if rollout.live for row in rollout.rows]
        chunks = pack(rows, self.args.max_tokens_per_forward)
        filler = [row for rollout in rollouts for row in rollout.rows]
        return self._even_chunks(chunks, filler)

    def _even_chunks(
        self, chunks: list[list[TrainRow]], fillers: Sequence[TrainRow]
    ) -> list[list[TrainRow]]:
        """At least one chunk, and as many as the rank with most: a rank that runs fewer forwards
        would leave the others waiting. Fillers weigh nothing."""
        wanted = max([1, *self._gather([len(chunks)])])
        if len(chunks) == wanted:
            return chunks
        shortest = min(fillers, key=lambda row: row.length, default=None)
        filler = _weightless(shortest, self._tokenizer.pad_token_id)
        return chunks + [[filler]] * (wanted - len(chunks))

    def _sync_context(self, model: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """Gradients are exchanged with the last chunk's backward only."""
        if last or self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            return nullcontext()
        context: AbstractContextManager[Any] = self.accelerator.no_sync(model)
        return context

    def _backward(self, loss: torch.Tensor) -> None:
        deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
        self.accelerator.backward(loss, **({"scale_wrt_gas": False} if deepspeed else {}))

    def _chunk_loss(self, model: nn.Module, rows: Sequence[TrainRow]) -> torch.Tensor:
        chunk = self._collate(rows)
        settings = self.loss_settings
        logps, entropy = self._forward(model, chunk)
        old = logps.detach() if chunk.old_logps is None else chunk.old_logps
        loss = clipped_policy_loss(logps, old, chunk.advantages, settings)
        if chunk.ref_logps is not None:
            kl = kl_to_reference(logps, chunk.ref_logps)
            if settings.correct_kl:
                kl = kl * torch.exp(logps - old)
            loss = loss + settings.beta * kl
            self._log_masked("kl", kl, chunk.mask)
        # Where the weight is zero the loss must be too, whatever the padding computed.
        total = torch.where(chunk.mask > 0, loss, 0.0).mul(chunk.weight).sum()
        if entropy is not None:
            total = total - settings.entropy_coef * (entropy * chunk.entropy_weight).sum()
            self._log_masked("entropy", entropy, chunk.mask)
        clipped = clip_shares(logps, old, chunk.advantages, settings)
        self._log_masked("clipped", clipped, chunk.mask)
        return total

    def _log_masked(self, name: str, values: torch.Tensor, mask: torch.Tensor) -> None:
        tokens = mask.sum()
        if tokens > 0:
            mean = (values.detach() * mask).sum() / tokens
            self._metrics["train"][name].append(float(mean))

    # -- evaluation -----------------------------------------------------------------------------

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Play the evaluation tasks with the evaluation's own sampling; no loss is computed.

        Returns and logs the metrics of `training.metrics.summarise` under the prefix.
        """
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if data is None:
            raise ValueError("evaluate needs an eval_dataset")
        started = time.perf_counter()
        training = self.model.training
        self.model.eval()
        sampling = SamplingParams(
            self.args.max_action_tokens,
            self.args.eval_temperature,
            stop=tuple(self.args.stop_strings),
        )
        rollouts = self._play(self._eval_places(data), sampling)
        values = summarise(self._gather([record(rollout) for rollout in rollouts]))
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in values.items()}
        metrics[f"{metric_key_prefix}_runtime"] = time.perf_counter() - started
        self._report(rollouts, "eval", None)
        self.log(dict(metrics))
        self.model.train(training)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def _eval_places(self, data: Any) -> list[Place]:
        rank, ranks = self.accelerator.process_index, self.accelerator.num_processes
        return [
            Place(data[task], task, index, session_seed(self.args.seed, "eval", task, index))
            for task in range(rank, len(data), ranks)
            for index in range(self.args.eval_rollouts)
        ]

    # -- logs and checkpoints -------------------------------------------------------------------

    def _log_generation(self, rollouts: Sequence[Rollout], signal: Any, seconds: float) -> None:
        records: list[RolloutRecord] = self._gather([record(rollout) for rollout in rollouts])
        values = summarise(records) | {
            "groups_without_signal": 1.0 - float(signal.mean()),
            "time/rollouts": seconds,
            "occupancy": self.engine.stats.occupancy,
        }
        for name, value in values.items():
            if not math.isnan(value):
                self._metrics["train"][name].append(value)
        self.signal.update(float(signal.mean()))

    def _report(
        self, rollouts: Sequence[Rollout], phase: str, advantages: Sequence[Floats] | None
    ) -> None:
        if self.rollout_sink is not None:
            info = {"phase": phase, "step": self.state.global_step, "advantages": advantages}
            self.rollout_sink(rollouts, info)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save, on generation boundaries only: in between, a resumed run would play again what
        this one has played already."""
        if self.state.global_step % self.args.steps_per_window == 0:
            super()._save_checkpoint(model, trial)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Iterator[Any]:
        """Evaluation plays tasks itself; nothing iterates a data loader."""
        raise NotImplementedError("GRPOEnvTrainer.evaluate plays the tasks of the dataset")


def _check_dataset(dataset: Any, args: GRPOEnvConfig) -> None:
    if dataset is None:
        raise ValueError("train_dataset is missing: rows of env_class_path, env_config, task_data")
    columns = set(getattr(dataset, "column_names", None) or [])
    missing = {"env_class_path", "env_config", "task_data"} - columns
    if missing:
        raise ValueError(
            f"train_dataset has no column {sorted(missing)[0]!r}; it has {sorted(columns)}"
        )
    needed = args.generation_batch_size // args.num_generations
    if len(dataset) < needed:
        raise ValueError(
            f"one generation takes {needed} tasks (generation_batch_size "
            f"{args.generation_batch_size} / num_generations {args.num_generations}), "
            f"train_dataset has {len(dataset)}"
        )


def _weightless(row: TrainRow | None, pad_token_id: int) -> TrainRow:
    """A row that costs one forward pass and carries no loss."""
    from agentsgym.types import Row

    ids = row.row.token_ids[:2] if row is not None and row.length > 1 else (pad_token_id,) * 2
    blank = Row("", 0, 0, ids, (0,) * 2, (0.0,) * 2, (0.0,) * 2, ())
    import numpy as np

    return TrainRow(blank, np.zeros(2))


def _rewards_come_from_environments(**_: Any) -> list[float]:
    raise RuntimeError("rewards come from the environments; TRL must not ask for them")
