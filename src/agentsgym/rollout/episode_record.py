"""The dict that `_run_complete_episode` returns, if an override made or changed it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentsgym.rollout.answers import number
from agentsgym.rollout.episode import with_reward
from agentsgym.rollout.session import SessionError
from agentsgym.types import Episode, Message, Row, Step, StepSpan
from agentsgym.types.plain import clean_text, short_repr

_LISTS = ("full_token_ids", "agent_token_mask", "per_token_rewards")


def check_record(record: Any) -> None:
    """Raise SessionError if a key is missing, lists differ in length, a mask has values other than
    0 and 1, or a reward is not a number."""
    missing = [key for key in (*_LISTS, "final_reward") if key not in record]
    if not isinstance(record, Mapping) or missing:
        raise SessionError(
            "_run_complete_episode must return a dict with full_token_ids, full_attention_mask, "
            f"agent_token_mask, per_token_rewards and final_reward; got {short_repr(record)}"
        )
    lengths = {key: len(record[key]) for key in _LISTS}
    if len(set(lengths.values())) > 1:
        raise SessionError(f"_run_complete_episode returned lists of different lengths: {lengths}")
    if not set(record["agent_token_mask"]) <= {0, 1}:
        raise SessionError("agent_token_mask must hold 0 and 1 only")
    number(record["final_reward"], "final_reward")
    for reward in record["per_token_rewards"]:
        number(reward, "per_token_rewards")


def with_final_reward(episode: Episode, reward: float) -> Episode:
    """The episode with another reward; its last step gets the difference."""
    if reward == episode.reward:
        return episode
    if not episode.steps:
        raise SessionError(f"final_reward is {reward:g}, but the episode has no step to earn it")
    return replace(episode, steps=tuple(with_reward(episode.steps, reward)), reward=reward)


def foreign_episode(record: Mapping[str, Any], index: int) -> tuple[Episode, Row]:
    """An episode and its row, made only from the specification's unpadded dict."""
    mask = tuple(int(on) for on in record["agent_token_mask"])
    spans = [StepSpan(index, k, *run) for k, run in enumerate(_runs(mask))]
    reward = float(record["final_reward"])
    rewards = [0.0] * (len(spans) - 1) + [reward] if spans else []
    steps = tuple(Step(k, "", "", r, done=k == len(spans) - 1) for k, r in enumerate(rewards))
    messages = tuple(map(_message, record.get("final_completion_messages", ())))
    episode = Episode(index, steps, messages, reward, 1.0, "done")
    row = Row(
        "",
        0,
        0,
        tuple(record["full_token_ids"]),
        mask,
        (0.0,) * len(mask),
        tuple(map(float, record["per_token_rewards"])),
        tuple(spans),
        sampled=False,
    )
    return episode, row


def _message(message: Mapping[str, Any]) -> Message:
    return {key: clean_text(str(message[key])) for key in ("role", "content")}  # type: ignore[return-value]


def _runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    """Start and stop of each run of ones."""
    padded = [0, *mask, 0]
    edges = [i for i in range(len(mask) + 1) if padded[i] != padded[i + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))
