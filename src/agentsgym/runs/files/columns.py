"""Rollouts as rows of an Arrow table and back; `docs/run-directory.md` lists the columns.

All data that training needs is restored exactly: ids, log-probabilities, rewards, spans. An
environment's free-form `info`, `env_config` and `task_data` are JSON texts, restored as far as JSON
allows: tuples become lists, keys strings, NumPy scalars plain numbers, members of an enum their
values, UUIDs their text, other objects their repr, infinite numbers and NaN null, and a lone
surrogate U+FFFD. No value of an environment can prevent a rollout from being written.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.types import Episode, Rollout, Row, Step, StepSpan
from agentsgym.types.records import Floats
from agentsgym.types.reward_placement import FINAL_REWARDS, REWARD_PLACEMENTS
from agentsgym.types.text import (
    clean_text,
    finite,
    knows_secrets,
    mask_known,
    mask_secrets,
    masked,
    plain,
)


@dataclass(frozen=True, slots=True, eq=False)
class StoredRollout:
    """A rollout with its `phase`, the optimizer `step` before which it was played (the policy's
    version), the evaluation set (`dataset`; None if there is only one), and the advantages of its
    rows' tokens (float64, shape (T,) each) if it was trained on."""

    rollout: Rollout
    phase: str
    step: int
    advantages: tuple[Floats, ...] | None = None
    dataset: str | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredRollout):
            return NotImplemented
        mine, theirs = self.advantages or (), other.advantages or ()
        return (
            (self.rollout, self.phase, self.step, self.dataset)
            == (other.rollout, other.phase, other.step, other.dataset)
            and len(mine) == len(theirs)
            and all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
        )


# -- columns --------------------------------------------------------------------------------------


def _fields(**kinds: pa.DataType) -> list[pa.Field]:
    return [pa.field(name, kind) for name, kind in kinds.items()]


_STEP = _fields(
    index=pa.int64(),
    kind=pa.string(),
    observation=pa.string(),
    action=pa.string(),
    reward=pa.float64(),
    penalty=pa.float64(),
    done=pa.bool_(),
    malformed=pa.bool_(),
    truncated=pa.bool_(),
    info=pa.string(),
    anchor=pa.string(),
    token_rewards=pa.list_(pa.float64()),
)
_EPISODE = _fields(
    index=pa.int64(),
    reward=pa.float64(),
    score_weight=pa.float64(),
    stop_reason=pa.string(),
    continues=pa.bool_(),
    system=pa.string(),
    steps=pa.list_(pa.struct(_STEP)),
    written=pa.list_(pa.struct(_fields(role=pa.string(), content=pa.string()))),
)
_SPAN = _fields(episode=pa.int64(), step=pa.int64(), start=pa.int64(), stop=pa.int64())
_ROW = _fields(
    begins=pa.string(),
    rewrites=pa.string(),
    sampled=pa.bool_(),
    spans=pa.list_(pa.struct(_SPAN)),
    token_ids=pa.list_(pa.int32()),
    logprobs=pa.list_(pa.float32()),
    given_rewards=pa.list_(pa.float64()),
    advantages=pa.list_(pa.float64()),
)
SCHEMA = pa.schema(
    _fields(
        phase=pa.string(),
        step=pa.int64(),
        dataset=pa.string(),
        session_id=pa.string(),
        group=pa.int64(),
        index=pa.int64(),
        seed=pa.int64(),
        policy_version=pa.int64(),
        env_class_path=pa.string(),
        env_config=pa.string(),
        task_data=pa.string(),
        reward_placement=pa.string(),
        final_reward_placement=pa.string(),
        final_reward=pa.float64(),
        error=pa.string(),
        episodes=pa.list_(pa.struct(_EPISODE)),
        rows=pa.list_(pa.struct(_ROW)),
    )
)
_OPTIONAL = {
    "dataset", "final_reward", "error", "system", "written", "anchor", "token_rewards",
    "given_rewards", "advantages",
}  # fmt: skip
"""Columns whose values may be null."""


_OWN_WORDS = {
    "phase", "reward_placement", "final_reward_placement", "env_config", "task_data", "info",
    "kind", "begins", "rewrites",
}  # fmt: skip
"""Columns of our own words, and of JSON, whose texts are masked before they are encoded."""


# -- writing --------------------------------------------------------------------------------------


def table_of(stored: Sequence[StoredRollout]) -> pa.Table:
    """Rollouts as a table, with the remembered secrets masked in all texts."""
    rows = [_rollout(one) for one in stored]
    if knows_secrets():
        rows = _texts(rows, mask_known)
    try:
        return pa.Table.from_pylist(rows, SCHEMA)
    except UnicodeEncodeError:  # a lone surrogate
        return pa.Table.from_pylist(_texts(rows, clean_text), SCHEMA)


def _texts(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {
            key: item if key in _OWN_WORDS else _texts(item, change) for key, item in value.items()
        }
    return value


def _rollout(one: StoredRollout) -> dict[str, Any]:
    rollout = one.rollout
    advantages = one.advantages or [None] * len(rollout.rows)
    return {
        "phase": one.phase,
        "step": one.step,
        "dataset": one.dataset,
        "session_id": rollout.session_id,
        "group": rollout.group,
        "index": rollout.index,
        "seed": rollout.seed,
        "policy_version": rollout.policy_version,
        "env_class_path": rollout.env_class_path,
        "env_config": _masked_config(rollout.env_config),
        "task_data": _json(rollout.task_data),
        "reward_placement": rollout.reward_placement,
        "final_reward_placement": rollout.final_reward_placement,
        "final_reward": finite(rollout.final_reward),
        "error": None if rollout.error is None else mask_secrets(rollout.error),
        "episodes": [_episode(episode) for episode in rollout.episodes],
        "rows": [_row(row, own) for row, own in zip(rollout.rows, advantages, strict=True)],
    }


def _episode(episode: Episode) -> dict[str, Any]:
    return {
        "index": episode.index,
        "reward": episode.reward,
        "score_weight": episode.score_weight,
        "stop_reason": episode.stop_reason,
        "continues": episode.continues,
        "system": episode.system,
        "steps": [_step(step) for step in episode.steps],
        "written": None if episode.written is None else [dict(m) for m in episode.written],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "index": step.index,
        "kind": step.kind,
        "observation": step.observation,
        "action": step.action,
        "reward": step.reward,
        "penalty": step.penalty,
        "done": step.done,
        "malformed": step.malformed,
        "truncated": step.truncated,
        "info": _json(step.info),
        "anchor": step.anchor,
        "token_rewards": None if step.token_rewards is None else list(step.token_rewards),
    }


def _row(row: Row, advantages: Floats | None) -> dict[str, Any]:
    return {
        "begins": row.begins,
        "rewrites": row.rewrites,
        "sampled": row.sampled,
        "spans": [
            {"episode": s.episode, "step": s.step, "start": s.start, "stop": s.stop}
            for s in row.spans
        ],
        "token_ids": row.token_ids,
        "logprobs": row.logprobs,
        "given_rewards": row.given_rewards,
        "advantages": advantages,
    }


_JSON_TYPES_ONLY = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_LARGE = 1 << 22


def _json(value: Any) -> str:
    """A free-form value as JSON; in `plain` form if it is not made of JSON's own types, or large.
    Secrets are masked before JSON escapes them."""
    try:
        text = orjson.dumps(value, option=_JSON_TYPES_ONLY)
        if len(text) <= _LARGE and not knows_secrets():
            return text.decode()
    except TypeError:
        pass
    data = plain(value)
    if knows_secrets():
        data = _masked(data)
    return json.dumps(data, ensure_ascii=False, allow_nan=False)


def _masked(value: Any) -> Any:
    """Free-form data with the remembered secrets replaced in its texts and keys."""
    if isinstance(value, str):
        return mask_known(value)
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if isinstance(value, dict):
        return {mask_known(key): _masked(item) for key, item in value.items()}
    return value


def _masked_config(config: Mapping[str, Any]) -> str:
    """A configuration without keys; most rollouts have the one of the rollout before."""
    try:
        return _masked_json(orjson.dumps(config, option=_JSON_TYPES_ONLY))
    except TypeError:
        return _json(masked(plain(config)))


@lru_cache(maxsize=16)
def _masked_json(text: bytes) -> str:
    return _json(masked(plain(orjson.loads(text))))


# -- reading --------------------------------------------------------------------------------------


def rollouts_of(table: pa.Table) -> Iterator[StoredRollout]:
    """The rollouts of a table of `SCHEMA`. Raises DamagedFile for one that cannot be."""
    rows = _rows_of(table.column("rows"))
    for data, own in zip(table.drop_columns(["rows"]).to_pylist(), rows, strict=True):
        _check_nulls(data)
        yield _stored(data, own)


Arrays = list[dict[str, Any]]
"""The rows of a rollout, their numbers as arrays."""


def _rows_of(column: pa.ChunkedArray) -> Iterator[Arrays]:
    rows = column.combine_chunks()
    structs = rows.flatten()
    others = [name for name in structs.type.names if name not in _NUMBERS]
    table = pa.Table.from_struct_array(structs)
    read = table.select(others).to_pylist()
    for name in _NUMBERS:
        for row, values in zip(read, _slices(table.column(name)), strict=True):
            row[name] = values
    start = 0
    for size in rows.value_lengths().to_pylist():
        if size is None:
            raise DamagedFile("rows is missing")
        yield read[start : start + size]
        start += size


_NUMBERS = ("token_ids", "logprobs", "given_rewards", "advantages")


def _slices(column: pa.ChunkedArray) -> Iterator[Any]:
    """Each list of numbers as an array; None for null."""
    lists = column.combine_chunks()
    values = lists.flatten()
    if values.null_count:
        raise DamagedFile("a list of numbers holds a null")
    numbers = values.to_numpy(zero_copy_only=False)
    start = 0
    for size in lists.value_lengths().to_pylist():
        yield None if size is None else numbers[start : start + size]
        start += size or 0


def _check_nulls(data: Any, name: str = "") -> None:
    if isinstance(data, dict):
        for key, value in data.items():
            if value is None and key not in _OPTIONAL:
                raise DamagedFile(f"{key} is missing")
            _check_nulls(value, key)
    elif isinstance(data, list):
        for item in data:
            if item is None:
                raise DamagedFile(f"{name} holds a null")
            if not isinstance(item, float):
                _check_nulls(item, name)


def _stored(data: dict[str, Any], rows: Arrays) -> StoredRollout:
    episodes = tuple(_episode_of(episode) for episode in data["episodes"])
    lengths = [len(episode.steps) for episode in episodes]
    _check_nulls([{k: v for k, v in row.items() if k not in _NUMBERS} for row in rows])
    if data["reward_placement"] not in REWARD_PLACEMENTS:
        raise DamagedFile(f"reward_placement is {data['reward_placement'][:60]!r}")
    if data["final_reward_placement"] not in FINAL_REWARDS:
        raise DamagedFile(f"final_reward_placement is {data['final_reward_placement'][:60]!r}")
    if [episode.index for episode in episodes] != list(range(len(episodes))):
        raise DamagedFile("the episodes are not numbered in their order")
    rollout = Rollout(
        session_id=data["session_id"],
        group=data["group"],
        index=data["index"],
        env_class_path=data["env_class_path"],
        env_config=_object(data["env_config"], "env_config"),
        task_data=_object(data["task_data"], "task_data"),
        episodes=episodes,
        rows=tuple(_row_of(row, data, lengths) for row in rows),
        error=data["error"],
        seed=data["seed"],
        policy_version=data["policy_version"],
        reward_placement=data["reward_placement"],
        final_reward_placement=data["final_reward_placement"],
    )
    advantages = tuple(row["advantages"] for row in rows)
    known = bool(rows) and all(values is not None for values in advantages)
    if known and any(len(a) != len(r["token_ids"]) for a, r in zip(advantages, rows, strict=True)):
        raise DamagedFile("advantages do not fit the rows")
    return StoredRollout(
        rollout, data["phase"], data["step"], advantages if known else None, data["dataset"]
    )


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DamagedFile(f"{name} is not a JSON object")
    return value


def _episode_of(data: dict[str, Any]) -> Episode:
    steps = tuple(_step_of(step) for step in data.pop("steps"))
    written = data.pop("written")
    return Episode(steps=steps, written=None if written is None else tuple(written), **data)


def _step_of(data: dict[str, Any]) -> Step:
    info = _object(data.pop("info"), "info")
    rewards = data.pop("token_rewards")
    return Step(info=info, token_rewards=None if rewards is None else tuple(rewards), **data)


def _row_of(row: dict[str, Any], rollout: Mapping[str, Any], steps: Sequence[int]) -> Row:
    """A row; `steps` are the numbers of steps of the episodes."""
    length = len(row["token_ids"]) if row["token_ids"] is not None else 0
    for name in ("token_ids", "logprobs", "given_rewards"):
        if (name != "given_rewards" or row[name] is not None) and (
            row[name] is None or len(row[name]) != length
        ):
            raise DamagedFile("the lists of a row have different lengths")
    spans = tuple(StepSpan(**span) for span in row["spans"])
    for span in spans:
        if not 0 <= span.start <= span.stop <= length:
            raise DamagedFile(f"a span from {span.start} to {span.stop} lies outside its row")
        if not 0 <= span.episode < len(steps) or not 0 <= span.step < steps[span.episode]:
            raise DamagedFile(f"a span names step {span.step} of episode {span.episode}")
    return Row(
        session_id=rollout["session_id"],
        group=rollout["group"],
        rollout=rollout["index"],
        token_ids=np.asarray(row["token_ids"], np.int32),
        logprobs=np.asarray(row["logprobs"], np.float32),
        spans=spans,
        begins=row["begins"],
        sampled=row["sampled"],
        rewrites=row["rewrites"],
        given_rewards=row["given_rewards"],
    )
