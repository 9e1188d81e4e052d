"""TRL's `rollout_func`: trials of our environments as token sequences.

The rollouts are those of `GRPOEnvTrainer`: the same engine, seeds and tokens. TRL takes one
sequence and one reward for each."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from agentsgym.credit import table_of
from agentsgym.envs import MultistepEnv
from agentsgym.evaluation.metrics import record, summarize
from agentsgym.generation.settings import EngineSettings
from agentsgym.integrations.trl.player import PlaySettings, TrainerPlayer, rows_of
from agentsgym.types import Rollout, Trust

_WHY = {
    "template": "the chat template rewrote the history (agentsgym tokens MODEL says where)",
    "episode": "an episode began a new conversation (env_config.carry)",
}


class SeveralRows(ValueError):
    """A rollout has several rows, and TRL trains one sequence per rollout."""


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Token ids from the beginning to the last agent token, cut before the first agent token.

    `env_mask` (1 for agent tokens) and `logprobs` (0.0 elsewhere) are as long as `completion_ids`.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    env_mask: list[int]
    logprobs: list[float]


def token_sequence(rollout: Rollout, filler: int) -> TokenSequence:
    """The sequence of a rollout. One that failed, or has no agent token, becomes a single masked
    `filler` token, because TRL takes no empty completion.

    Raises SeveralRows.
    """
    if not rollout.failed and len(rollout.rows) > 1:
        raise SeveralRows(_problem(rollout))
    row = rollout.rows[0] if rollout.rows else None
    if row is None or rollout.failed or not row.agent_tokens:
        prompt = [filler] if row is None else row.token_ids[: row.prompt_length].tolist()
        return TokenSequence(prompt or [filler], [filler], [0], [0.0])
    begin, end = row.prompt_length, max(span.stop for span in row.spans)
    return TokenSequence(
        row.token_ids[:begin].tolist(),
        row.token_ids[begin:end].tolist(),
        row.agent_token_mask[begin:end].tolist(),
        row.logprobs[begin:end].tolist(),
    )


def _problem(rollout: Rollout) -> str:
    second = rollout.rows[1]
    where = f" at step {second.steps[0]} of episode {second.episodes[0]}" if second.spans else ""
    return (
        f"{rollout.env_class_path}: session {rollout.session_id} gave {len(rollout.rows)} rows of "
        f"tokens, and TRL's GRPOTrainer trains one per rollout; the second begins{where} because "
        f"{_WHY.get(second.begins, second.begins)}. agentsgym.GRPOEnvTrainer trains on all of them"
    )


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

    def __init__(
        self,
        *,
        max_action_tokens: int | None = None,
        max_rollout_tokens: int | None = None,
        stop_strings: Sequence[str] = (),
        envs: Iterable[MultistepEnv] = (),
        engine: EngineSettings | None = None,
        trust: Trust = False,
    ) -> None:
        self._settings = PlaySettings(
            envs=tuple(envs),
            max_action_tokens=max_action_tokens,
            max_rollout_tokens=max_rollout_tokens,
            stop_strings=tuple(stop_strings),
            engine=engine,
            trust=trust,
        )
        self._players: WeakKeyDictionary[Any, TrainerPlayer] = WeakKeyDictionary()

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Play one trial for each prompt of `prompt_dataset`; every process must call it.

        Returns TRL's keys `prompt_ids`, `completion_ids`, `logprobs` and `env_mask` (ragged lists,
        one entry per prompt), and for reward functions `episode_reward` (None for a rollout that
        failed), `won` (share of its scored episodes, or None), `step_rewards` (see there), and
        `figures`, those of all processes together.

        Raises SeveralRows (a ValueError) for a rollout of several rows, ValueError for a prompt
        that is no task, and EveryRolloutFailed, in every process.
        """
        player = self._player(trainer)
        rows = player.ranks.together(lambda: rows_of(prompts))
        rollouts = player.play(rows, trainer)
        filler = player.tokenizer.eos_token_id
        sequences = player.ranks.together(lambda: [token_sequence(r, filler) for r in rollouts])
        records = [record(rollout) for rollout in rollouts]
        return {
            "prompt_ids": [s.prompt_ids for s in sequences],
            "completion_ids": [s.completion_ids for s in sequences],
            "logprobs": [s.logprobs for s in sequences],
            "env_mask": [s.env_mask for s in sequences],
            "episode_reward": [_number(rollout.final_reward) for rollout in rollouts],
            "won": [None if one.failed else one.win for one in records],
            "step_rewards": [step_rewards(rollout) for rollout in rollouts],
            "figures": summarize(player.ranks.gather(records)),
        }

    def _player(self, trainer: Any) -> TrainerPlayer:
        if trainer not in self._players:
            self._players[trainer] = TrainerPlayer(trainer, self._settings)
        return self._players[trainer]


def _number(reward: float) -> float | None:
    return reward if math.isfinite(reward) else None


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
