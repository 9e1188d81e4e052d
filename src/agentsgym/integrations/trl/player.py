"""Plays the trials of one of TRL's trainers: its tasks, engine, environments and seeds.

A dataset row travels as a prompt, its JSON, because TRL hands its `rollout_func` prompts and
nothing else."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.envs.dataset import TaskRow, check_row
from agentsgym.generation.embedded.requests import end_of_turn_ids
from agentsgym.generation.factory import make_trainable
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.rollout import play
from agentsgym.training.chat_templates import template_options
from agentsgym.training.collect import WeightSync
from agentsgym.training.engines import sampling_dtype
from agentsgym.training.ranks import Ranks
from agentsgym.training.stopping import FailureReport
from agentsgym.types import (
    Rollout,
    RolloutRequest,
    SamplingParams,
    TrainableEngine,
    Trust,
    session_seed,
)
from agentsgym.types.text import short_repr

if TYPE_CHECKING:
    from datasets import Dataset


def task_prompt(row: Mapping[str, Any]) -> str:
    """The prompt that stands for a row of the dataset schema: its JSON. For a stream:
    `stream.map(lambda row: {"prompt": task_prompt(row)})`."""
    return json.dumps(check_row(row, 0), ensure_ascii=False)


def prompt_dataset(rows: Iterable[Mapping[str, Any]]) -> "Dataset":
    """A dataset of one column `prompt`, for TRL, of the rows of ours.

    Raises ValueError with the number of a row that does not follow the row schema.
    """
    from datasets import Dataset

    prompts = [task_prompt(check_row(row, number)) for number, row in enumerate(rows)]
    return Dataset.from_dict({"prompt": prompts})


def rows_of(prompts: Sequence[Any]) -> list[TaskRow]:
    """The rows that prompts stand for; a prompt is a text, or messages of which the last one is
    the text. Raises ValueError with the number of a prompt that stands for none."""
    return [_row(prompt, number) for number, prompt in enumerate(prompts)]


def _row(prompt: Any, number: int) -> TaskRow:
    text = prompt
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], Mapping):
        text = prompt[-1].get("content")
    try:
        return check_row(json.loads(text), number)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(
            f"prompt {number} is no task: {short_repr(text, 200)}; make the trainer's datasets "
            "with agentsgym.integrations.trl.prompt_dataset(rows)"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaySettings:
    """What TRL's configuration has no field for; `RolloutFunc` describes the fields."""

    envs: tuple[MultistepEnv, ...] = ()
    max_action_tokens: int | None = None
    max_rollout_tokens: int | None = None
    stop_strings: tuple[str, ...] = ()
    engine: EngineSettings | None = None
    trust: Trust = False


class TrainerPlayer:
    """Plays training and evaluation rollouts with the weights of one of TRL's trainers.

    Raises ValueError for a sampling setting of the trainer that engines here do not have.
    """

    def __init__(self, trainer: Any, settings: PlaySettings) -> None:
        self.ranks = Ranks(trainer.accelerator)
        self.tokenizer = tokenizer_of(trainer)
        self._settings = settings
        self._sampling = _sampling(trainer.args, settings)
        options = template_options(self.tokenizer, "own", trainer.chat_template_kwargs)
        self._pool = EnvPool(
            self.tokenizer,
            settings.trust,
            settings.envs,
            template_options=options,
        )
        self._engine = _engine(trainer, self.ranks, settings.engine or EngineSettings())
        self._sync = WeightSync(self._engine, Path(trainer.args.output_dir) / "sync", self.ranks)
        self._failures = FailureReport(self.ranks)

    def play(self, rows: Sequence[TaskRow], trainer: Any) -> list[Rollout]:
        """This rank's rollouts, one per row. Every rank must call it.

        Raises EveryRolloutFailed if that is so on all ranks.
        """
        step, training = trainer.state.global_step, trainer.model.training
        self._sync.push(trainer.accelerator.unwrap_model(trainer.model), step)
        requests = self._train_requests(rows, trainer) if training else self._eval(rows, trainer)
        rollouts = self.ranks.together(lambda: self._play(requests))
        if self._failures.tell(rollouts, "train" if training else "eval", step) and training:
            self._failures.stop(rollouts, step)
        return rollouts

    def _play(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        rollouts = play(requests, DirectOutputAgent(self._engine, self._sampling), self._pool)
        self._engine.finish()
        return rollouts

    def _train_requests(self, rows: Sequence[TaskRow], trainer: Any) -> list[RolloutRequest]:
        """With the seeds of `GRPOEnvTrainer`. TRL repeats a task `num_generations` times over the
        slices of all ranks."""
        seed, step = trainer.args.seed, trainer.state.global_step
        requests = []
        for number, row in enumerate(rows, self.ranks.slice(len(rows)).start):
            group, index = divmod(number, trainer.num_generations)
            noise = session_seed(seed, "train", step, group, index)
            requests.append(self._request(row, group, index, noise))
        return requests

    def _eval(self, rows: Sequence[TaskRow], trainer: Any) -> list[RolloutRequest]:
        """TRL evaluates batch by batch, without the numbers of the tasks: the noise is that of the
        task itself, the same in every evaluation."""
        seed, requests = trainer.args.seed, []
        for number, row in enumerate(rows, self.ranks.slice(len(rows)).start):
            group, index = divmod(number, trainer.num_generations_eval)
            noise = session_seed(seed, "eval", task_prompt(row), index)
            requests.append(self._request(row, group, index, noise))
        return requests

    def _request(self, row: TaskRow, group: int, index: int, seed: int) -> RolloutRequest:
        most = self._settings.max_rollout_tokens
        return RolloutRequest.of(row, group, index, seed, max_rollout_tokens=most)


def tokenizer_of(trainer: Any) -> Any:
    """The trainer's tokenizer; a processor holds one."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def _sampling(args: Any, settings: PlaySettings) -> SamplingParams:
    ignored = {"min_p": None, "repetition_penalty": 1.0, "generation_kwargs": None}
    for name, off in ignored.items():
        value = getattr(args, name, off)
        if value not in (off, {}):
            raise ValueError(
                f"{name}={value!r} does not reach agentsgym's engines; leave it out of GRPOConfig"
            )
    return SamplingParams(
        settings.max_action_tokens or args.max_completion_length,
        args.temperature,
        args.top_p,
        args.top_k or 0,
        settings.stop_strings,
    )


def _engine(trainer: Any, ranks: Ranks, settings: EngineSettings) -> TrainableEngine:
    from transformers.integrations import is_deepspeed_zero3_enabled

    if trainer.use_vllm:
        raise ValueError(
            "use_vllm is TRL's own vLLM, which plays no environments; start vLLM servers and name "
            "them in engine=EngineSettings(urls=[...])"
        )
    model = trainer.accelerator.unwrap_model(trainer.model)
    tokenizer = tokenizer_of(trainer)
    parts = EngineParts(
        model=lambda: model,
        tokenizer=lambda: tokenizer,
        vocab_size=lambda: model.get_input_embeddings().num_embeddings,
        stop_token_ids=end_of_turn_ids(tokenizer, model),
        sharded=trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled(),
        gather=ranks.gather,
        dtype=sampling_dtype(trainer.accelerator),
        rank=ranks.index,
        learns=True,
    )
    return make_trainable(settings, parts)
