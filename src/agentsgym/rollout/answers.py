"""Checks an environment's answers and converts them to plain data before they are recorded.

A fault found here ends only its own session. Found later, in a metric, a sum or a file, it would
end a whole evaluation or training.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentsgym.rollout.session import SessionError
from agentsgym.types.foreign import (
    LARGEST_REWARD,
    checked_number,
    checked_truth,
    listed,
    number,
)
from agentsgym.types.text import clean_text, plain, short_repr


class StepAnswer(NamedTuple):
    """The answer to an action. `info` is plain data, `token_rewards` one number per token, and
    `step_rewards` one per step of the episode, in place of the rewards so far."""

    state: Any
    reward: float
    done: bool
    malformed: bool
    info: Mapping[str, Any]
    token_rewards: tuple[float, ...] | None = None
    step_rewards: tuple[float, ...] | None = None


def read_answer(answer: Any) -> StepAnswer:
    """The result of `_step_episode`, checked. Raises SessionError or ValueError."""
    if not isinstance(answer, tuple | list) or len(answer) != 4:
        raise SessionError(
            f"_step_episode must return (next_state, reward, done, info), got {short_repr(answer)}"
        )
    state, reward, done, info = answer
    if type(info) is not dict and not isinstance(info, Mapping):
        raise SessionError(f"info must be a dict, got {short_repr(info)}")
    rewards, of_steps = info.get("token_rewards"), info.get("step_rewards")
    return StepAnswer(
        state=state,
        reward=checked_number(reward, "reward"),
        done=checked_truth(done, "done"),
        malformed=checked_truth(info.get("malformed", False), "info['malformed']"),
        info=_plain_info(info),
        token_rewards=None if rewards is None else _numbers(rewards, "token_rewards"),
        step_rewards=None if of_steps is None else _numbers(of_steps, "step_rewards"),
    )


def checked_text(value: Any, source: str) -> str:
    """The text that the hook `source` returned. Raises SessionError if it is not a str."""
    if not isinstance(value, str):
        raise SessionError(f"{source} must return str, got {type(value).__name__}")
    return clean_text(value)


def _plain_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """The info as plain data; the types of keys with a meaning are checked."""
    has_metrics = "metrics" in info
    result: dict[str, Any] = plain({**info, "metrics": None} if has_metrics else info)
    if has_metrics:
        result["metrics"] = _metrics(info["metrics"])
    for key in ("win", "informing"):
        if info.get(key) is not None:
            result[key] = checked_truth(info[key], f"info[{key!r}]")
    for key in ("anchor", "stop_reason"):
        if key in info and not isinstance(info[key], str | None):
            raise SessionError(f"info[{key!r}] must be str, got {short_repr(info[key])}")
    return result


def _metrics(metrics: Any) -> dict[str, float]:
    if type(metrics) is not dict and not isinstance(metrics, Mapping):
        raise SessionError(f"info['metrics'] must map names to numbers, got {short_repr(metrics)}")
    return {clean_text(str(name)): _metric(name, value) for name, value in metrics.items()}


def _metric(name: Any, value: Any) -> float:
    """The value, or NaN if it is not finite or too large to be summed; means ignore NaN."""
    result = number(value)
    if result is None:
        raise SessionError(
            f"info['metrics'][{short_repr(name)}] must be a number, got {short_repr(value)}"
        )
    return result if abs(result) <= LARGEST_REWARD else math.nan


def _numbers(values: Any, key: str) -> tuple[float, ...]:
    """The rewards that `info[key]` lists."""
    entries = listed(values)
    if entries is None:
        raise SessionError(f"info[{key!r}] must be numbers, got {short_repr(values)}")
    return tuple(checked_number(value, f"info[{key!r}]") for value in entries)
