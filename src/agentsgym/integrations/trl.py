"""Our environments in TRL's own `GRPOTrainer`: docs/integrations/trl.md.

`rollout_func` plays the rows of a dataset that `prompt_dataset` made, with the engine, seeds and
tokens of `GRPOEnvTrainer`; `episode_reward` is their reward. TRL takes one sequence and one reward
for each. It hands its `rollout_func` prompts and nothing else, so a prompt is the JSON of a dataset
row."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agentsgym.agents import DirectOutputAgent
from agentsgym.credit import table_of
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.envs.dataset import TaskRow, check_row
from agentsgym.evaluation.metrics import record, summarize
from agentsgym.generation.factory import make_trainable
from agentsgym.generation.settings import EngineSettings
from agentsgym.rollout import play
from agentsgym.tokens.tree import REASONS
from agentsgym.training.chat_templates import template_options
from agentsgym.training.engines import WeightSync, engine_parts
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
from agentsgym.types.text import finite, short_repr

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["RolloutFunc", "episode_reward", "prompt_dataset", "rollout_func", "task_prompt"]


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


_WHY = {
    "template": "the chat template rewrote the history (agentsgym tokens MODEL says where)",
    "episode": "an episode began a new conversation (env_config.carry)",
    "note": "an episode went on from a note (env_config.context_limit)",
    **REASONS,
}


class SeveralRows(ValueError):
    """A rollout has several rows, and TRL trains one sequence per rollout."""


def token_sequence(rollout: Rollout, filler: int) -> dict[str, list[Any]]:
    """A rollout as TRL's keys: ids from the beginning to the last agent token, cut before the first
    one, with `env_mask` (1 for agent tokens) and `logprobs` (0.0 elsewhere) as long as
    `completion_ids`. One that failed, or has no agent token, becomes a single masked `filler`
    token, because TRL takes no empty completion.

    Raises SeveralRows, and ValueError for tokens that were chosen from less than the whole
    vocabulary, which TRL's loss does not know.
    """
    if not rollout.failed and len(rollout.rows) > 1:
        raise SeveralRows(_problem(rollout))
    if len(rollout.supports):
        raise ValueError(
            f"{rollout.env_class_path}: with top_p, top_k or constrained actions tokens are chosen "
            "from a part of the vocabulary, and TRL's loss takes probabilities over all of it; "
            "leave them off, or use agentsgym.GRPOEnvTrainer"
        )
    row = rollout.rows[0] if rollout.rows else None
    prompt = [] if row is None else row.token_ids[: row.prompt_length].tolist()
    if row is None or rollout.failed or not row.agent_tokens:
        completion: tuple[list[Any], ...] = ([filler], [0], [0.0])
    else:
        part = slice(row.prompt_length, max(span.stop for span in row.spans))
        columns = (row.token_ids, row.agent_token_mask, row.logprobs)
        completion = tuple(column[part].tolist() for column in columns)
    keys = ("prompt_ids", "completion_ids", "env_mask", "logprobs")
    return dict(zip(keys, (prompt or [filler], *completion), strict=True))


def _problem(rollout: Rollout) -> str:
    second = rollout.rows[1]
    where = f" at step {second.steps[0]} of episode {second.episodes[0]}" if second.spans else ""
    return (
        f"{rollout.env_class_path}: session {rollout.session_id} gave {len(rollout.rows)} rows of "
        f"tokens, and TRL's GRPOTrainer trains one per rollout; the second begins{where} because "
        f"{_WHY.get(second.begins, second.begins)}. agentsgym.GRPOEnvTrainer trains on all of them"
    )


def check_one_row(env: MultistepEnv) -> None:
    """Raise SeveralRows for an environment whose trials have several conversations."""
    if why := env.config.several_conversations:
        raise SeveralRows(
            f"{env.name}: env_config.{why} gives a trial several conversations, and TRL's "
            "GRPOTrainer trains one per rollout: set carry='full' and no context_limit, or use "
            "agentsgym.GRPOEnvTrainer"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RolloutFunc:
    """For `GRPOTrainer(rollout_func=…)`, with settings that `GRPOConfig` has no field for.

    The temperature, `top_p`, `top_k`, the seed and `chat_template_kwargs` are those of
    `GRPOConfig`. One object may serve several trainers.

    Args:
        max_action_tokens: cap of one action (None: `max_completion_length`).
        max_rollout_tokens: cap of the whole sequence, in tokens; what does not fit is not played.
        stop_strings: texts that end an action.
        envs: environment objects that play the rows of their class and config.
        engine: its `capacity`, or servers that sample; None: the embedded engine.
        trust: what rows may name, beyond what is registered (`agentsgym.types.Trust`).
    """

    max_action_tokens: int | None = None
    max_rollout_tokens: int | None = None
    stop_strings: Sequence[str] = ()
    envs: Sequence[MultistepEnv] = ()
    engine: EngineSettings | None = None
    trust: Trust = False
    _players: WeakKeyDictionary[Any, "TrainerPlayer"] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False
    )

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Play one trial for each prompt of `prompt_dataset`; every process must call it.

        Returns TRL's keys `prompt_ids`, `completion_ids`, `logprobs` and `env_mask` (ragged lists,
        one entry per prompt), and for reward functions `episode_reward` (None for a rollout that
        failed), `won` (share of its scored episodes, or None), `step_rewards` (see there), and
        `figures`, those of all processes together.

        Raises SeveralRows (a ValueError) for a rollout of several rows, ValueError for a prompt
        that is no task, and EveryRolloutFailed, in every process.
        """
        if trainer not in self._players:
            self._players[trainer] = TrainerPlayer(trainer, self)
        player = self._players[trainer]
        rows = player.ranks.together(lambda: rows_of(prompts))
        rollouts = player.play(rows, trainer)
        filler = player.tokenizer.eos_token_id
        sequences = player.ranks.together(lambda: [token_sequence(r, filler) for r in rollouts])
        records = [record(rollout) for rollout in rollouts]
        return {
            **{key: [each[key] for each in sequences] for key in sequences[0]},
            "episode_reward": [finite(rollout.final_reward) for rollout in rollouts],
            "won": [None if one.failed else one.win for one in records],
            "step_rewards": [step_rewards(rollout) for rollout in rollouts],
            "figures": summarize(player.ranks.gather(records)),
        }


def step_rewards(rollout: Rollout) -> list[float]:
    """What each action, through all episodes, adds to the reward of the rollout: of an action in a
    free shot nothing but the penalty for a malformed one."""
    table = table_of([rollout])
    counted: list[float] = table.counted[~table.reflection].tolist()
    return counted


rollout_func = RolloutFunc()
"""TRL's `rollout_func` with the settings of `GRPOConfig` alone."""


# TRL logs its own.
_OF_TRL = ("reward", "reward_std")


def episode_reward(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    *,
    episode_reward: Sequence[float | None] | None = None,
    figures: Sequence[Mapping[str, float]] = (),
    log_metric: Callable[[str, float], None] | None = None,
    **_: Any,
) -> list[float | None]:
    """The reward of each rollout, the mean over its scored episodes; None if it failed.

    Also logs the figures of the generation (`win_rate`, `stop/done`, the environments' own, …)
    under the names that `GRPOEnvTrainer` uses. Raises ValueError without our `rollout_func`.
    """
    if episode_reward is None:
        raise ValueError(
            "episode_reward reads what the rollouts brought: also give the trainer "
            "rollout_func=agentsgym.integrations.trl.rollout_func"
        )
    if log_metric is not None and figures:
        for name, value in figures[0].items():
            if name not in _OF_TRL:
                log_metric(name, value)
    return list(episode_reward)


class TrainerPlayer:
    """Plays training and evaluation rollouts with the weights of one of TRL's trainers.

    Raises ValueError for a sampling setting of the trainer that engines here do not have.
    """

    def __init__(self, trainer: Any, settings: "RolloutFunc") -> None:
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

        Raises SeveralRows for an environment whose trials have several rows, and
        EveryRolloutFailed if that is so on all ranks.
        """
        for row in rows:
            check_one_row(self._pool.get(row))
        step, training = trainer.state.global_step, trainer.model.training
        self._sync.push(trainer.accelerator.unwrap_model(trainer.model), step)
        requests = list(self._requests(rows, trainer))
        agent = DirectOutputAgent(self._engine, self._sampling)
        rollouts = self.ranks.together(lambda: play(requests, agent, self._pool))
        if self._failures.report(rollouts, "train" if training else "eval", step) and training:
            self._failures.stop(rollouts, step)
        return rollouts

    def _requests(self, rows: Sequence[TaskRow], trainer: Any) -> Iterator[RolloutRequest]:
        """In training with the seeds of `GRPOEnvTrainer`. TRL repeats a task `num_generations`
        times over the slices of all ranks. It evaluates batch by batch, without the numbers of the
        tasks: the noise is that of the task itself, the same in every evaluation."""
        seed, step, training = trainer.args.seed, trainer.state.global_step, trainer.model.training
        size = trainer.num_generations if training else trainer.num_generations_eval
        most = self._settings.max_rollout_tokens
        for number, row in enumerate(rows, self.ranks.slice(len(rows)).start):
            group, index = divmod(number, size)
            place = ("train", step, group) if training else ("eval", task_prompt(row))
            noise = session_seed(seed, *place, index)
            yield RolloutRequest.of(row, group, index, noise, max_rollout_tokens=most)


def tokenizer_of(trainer: Any) -> Any:
    """The trainer's tokenizer; a processor holds one."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def _sampling(args: Any, settings: "RolloutFunc") -> SamplingParams:
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
        tuple(settings.stop_strings),
    )


def _engine(trainer: Any, ranks: Ranks, settings: EngineSettings) -> TrainableEngine:
    if trainer.use_vllm:
        raise ValueError(
            "use_vllm is TRL's own vLLM, which plays no environments; start vLLM servers and name "
            "them in engine=EngineSettings(urls=[...])"
        )
    return make_trainable(settings, engine_parts(trainer, tokenizer_of(trainer), ranks))
