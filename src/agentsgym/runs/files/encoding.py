"""Rollouts as JSON objects and back.

All data that training needs is restored exactly: ids, masks, logprobs, rewards, spans. An
environment's free-form `info`, `env_config` and `task_data` are restored as far as JSON allows:
tuples become lists, keys strings, NumPy scalars plain numbers, members of an enum their values,
UUIDs their text, other objects their repr, infinite numbers and NaN null, and a lone surrogate
U+FFFD. No value of an environment can prevent a rollout from being written.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from agentsgym.runs.files.formats import ROLLOUTS
from agentsgym.types import Episode, Message, Rollout, Row, Step, StepSpan
from agentsgym.types.text import mask_known, mask_secrets, masked, may_hold_known, plain

_JSON_TYPES_ONLY = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_LARGE = 1 << 22
_FREE_FORM = frozenset({"env_config", "task_data", "info"})


@dataclass(frozen=True, slots=True)
class RolloutLine:
    """A stored rollout: its `phase`, the optimizer `step` before which it was played (the policy's
    version), the evaluation set (`dataset`; None if there is only one), and the advantages of its
    rows' tokens if it was trained on."""

    rollout: Rollout
    phase: str
    step: int
    advantages: tuple[tuple[float, ...], ...] | None = None
    dataset: str | None = None


def to_line(line: RolloutLine) -> bytes:
    """A rollout as a line of a shard, without the line end."""
    try:
        text = orjson.dumps(ROLLOUTS.stamped(to_json(line, _encoded)))
    except TypeError:  # it knows no integers of more than 64 bits, and no lone surrogates
        return _to_line_slowly(line)
    return _encode(_without_known(json.loads(text))) if may_hold_known(text) else text


def _encoded(value: Any) -> Any:
    """A free-form value as JSON text, as it stands in a line; in `plain` form if it is not made of
    JSON's own types, or too large."""
    try:
        text = orjson.dumps(value, option=_JSON_TYPES_ONLY)
    except TypeError:
        return plain(value)
    return orjson.Fragment(text) if len(text) <= _LARGE else plain(value)


def _to_line_slowly(line: RolloutLine) -> bytes:
    data = ROLLOUTS.stamped(to_json(line))
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        text = json.dumps(plain(data), ensure_ascii=False, allow_nan=False)
    return _encode(_without_known(json.loads(text)))


def _encode(data: Any) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # a lone surrogate: UTF-8 cannot encode it, a JSON escape can
        return json.dumps(data, allow_nan=False).encode()


def _without_known(value: Any, free: bool = False) -> Any:
    """A line's value with the remembered secrets replaced in its texts, and in the keys of what is
    `free`-form. A line's own keys and numbers stay, also where a secret happens to occur in one."""
    if isinstance(value, str):
        return mask_known(value)
    if isinstance(value, list):
        return [_without_known(item, free) for item in value]
    if isinstance(value, dict):
        return {
            mask_known(key) if free else key: _without_known(item, free or key in _FREE_FORM)
            for key, item in value.items()
        }
    return value


def to_json(line: RolloutLine, free: Callable[[Any], Any] = plain) -> dict[str, Any]:
    """A rollout as a JSON object; `free` converts an environment's free-form values."""
    rollout = line.rollout
    return {
        "phase": line.phase,
        "step": line.step,
        "dataset": line.dataset,
        "session_id": rollout.session_id,
        "group": rollout.group,
        "index": rollout.index,
        "seed": rollout.seed,
        "policy_version": rollout.policy_version,
        "env_class_path": rollout.env_class_path,
        "env_config": _masked_config(rollout.env_config),
        "task_data": free(rollout.task_data),
        "final_reward": finite(rollout.final_reward),
        "error": None if rollout.error is None else mask_secrets(rollout.error),
        "episodes": [_episode_to_json(episode, free) for episode in rollout.episodes],
        "rows": [_row_to_json(row) for row in rollout.rows],
        "advantages": line.advantages,
        "reward_placement": rollout.reward_placement,
        "final_reward_placement": rollout.final_reward_placement,
    }


def from_json(data: Mapping[str, Any]) -> RolloutLine:
    """The rollout of a line in the current version. Raises KeyError for a missing key."""
    rollout = Rollout(
        session_id=data["session_id"],
        group=data["group"],
        index=data["index"],
        env_class_path=data["env_class_path"],
        env_config=data["env_config"],
        task_data=data["task_data"],
        episodes=tuple(_episode_from_json(episode) for episode in data["episodes"]),
        rows=tuple(_row_from_json(row, data) for row in data["rows"]),
        error=data["error"],
        seed=data["seed"],
        policy_version=data["policy_version"],
        reward_placement=data["reward_placement"],
        final_reward_placement=data["final_reward_placement"],
    )
    given = data["advantages"]
    advantages = None if given is None else tuple(_numbers(values) for values in given)
    return RolloutLine(rollout, data["phase"], data["step"], advantages, data["dataset"])


def _masked_config(config: Mapping[str, Any]) -> Any:
    """A configuration without keys; most rollouts have the one of the rollout before."""
    try:
        return _masked_text(orjson.dumps(config, option=_JSON_TYPES_ONLY))
    except TypeError:
        return masked(plain(config))


@lru_cache(maxsize=16)
def _masked_text(text: bytes) -> Any:
    return masked(plain(orjson.loads(text)))


def _episode_to_json(episode: Episode, free: Callable[[Any], Any]) -> dict[str, Any]:
    return {
        "index": episode.index,
        "reward": episode.reward,
        "score_weight": episode.score_weight,
        "stop_reason": episode.stop_reason,
        "continues": episode.continues,
        "system": episode.system,
        "written": episode.written,
        "steps": [_step_to_json(step, free) for step in episode.steps],
    }


def _episode_from_json(data: Mapping[str, Any]) -> Episode:
    return Episode(
        index=data["index"],
        steps=tuple(_step_from_json(step) for step in data["steps"]),
        reward=_number(data["reward"]),
        score_weight=data["score_weight"],
        stop_reason=data["stop_reason"],
        continues=data["continues"],
        system=data["system"],
        written=_messages(data["written"]),
    )


def _messages(given: Sequence[Mapping[str, str]] | None) -> tuple[Message, ...] | None:
    if given is None:
        return None
    return tuple({"role": message["role"], "content": message["content"]} for message in given)


def _step_to_json(step: Step, free: Callable[[Any], Any]) -> dict[str, Any]:
    return {
        "index": step.index,
        "observation": step.observation,
        "action": step.action,
        "reward": step.reward,
        "penalty": step.penalty,
        "done": step.done,
        "info": free(step.info),
        "malformed": step.malformed,
        "truncated": step.truncated,
        "kind": step.kind,
        "anchor": step.anchor,
        "token_rewards": None if step.token_rewards is None else list(step.token_rewards),
    }


def _step_from_json(data: Mapping[str, Any]) -> Step:
    rewards = data["token_rewards"]
    return Step(
        index=data["index"],
        observation=data["observation"],
        action=data["action"],
        reward=_number(data["reward"]),
        done=data["done"],
        info=data["info"],
        malformed=data["malformed"],
        truncated=data["truncated"],
        kind=data["kind"],
        anchor=data["anchor"],
        token_rewards=None if rewards is None else _numbers(rewards),
        penalty=_number(data["penalty"]),
    )


def _row_to_json(row: Row) -> dict[str, Any]:
    rewrites = {"rewrites": row.rewrites} if row.rewrites else {}
    return {
        "begins": row.begins,
        **rewrites,
        "sampled": row.sampled,
        "token_ids": row.token_ids.tolist(),
        "logprobs": row.logprobs.tolist(),
        "given_rewards": None if row.given_rewards is None else row.given_rewards.tolist(),
        "spans": [[span.episode, span.step, span.start, span.stop] for span in row.spans],
    }


def _row_from_json(data: Mapping[str, Any], rollout: Mapping[str, Any]) -> Row:
    given = data["given_rewards"]
    return Row(
        session_id=rollout["session_id"],
        group=rollout["group"],
        rollout=rollout["index"],
        token_ids=np.array(data["token_ids"], np.int32),
        logprobs=np.array(_numbers(data["logprobs"]), np.float32),
        given_rewards=given if given is None else np.array(_numbers(given), np.float64),
        spans=tuple(StepSpan(*span) for span in data["spans"]),
        begins=data["begins"],
        sampled=data["sampled"],
        rewrites=data.get("rewrites", ""),
    )


def _numbers(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(math.nan if value is None else value for value in values)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def finite(value: float) -> float | None:
    """The number, or None if it is not finite."""
    return value if math.isfinite(value) else None
