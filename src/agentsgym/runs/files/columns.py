"""Rollouts as rows of an Arrow table and back; `docs/run-directory.md` lists the columns.

All data that training needs is restored exactly: ids, log-probabilities, rewards, spans. An
environment's free-form `info`, `env_config` and `task_data` are JSON texts, restored as far as JSON
allows (see `agentsgym.types.text.plain`). No value of an environment can prevent a rollout from
being written.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.types import Episode, Message, Rollout, Row, Step, StepSpan
from agentsgym.types.records import Floats
from agentsgym.types.reward_placement import FINAL_REWARDS, REWARD_PLACEMENTS
from agentsgym.types.text import clean_text, finite, map_texts, mask_known, masked, plain
from agentsgym.types.tool_actions import checked_calls


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
        names = ("rollout", *_OF_A_STORED)
        mine, theirs = self.advantages or (), other.advantages or ()
        return (
            all(getattr(self, name) == getattr(other, name) for name in names)
            and len(mine) == len(theirs)
            and all(map(np.array_equal, mine, theirs))
        )


# -- columns --------------------------------------------------------------------------------------


def required(name: str, kind: pa.DataType) -> pa.Field:
    """A column without nulls; a file that declares it otherwise is not read."""
    return pa.field(name, kind, nullable=False)


def list_of(kind: pa.DataType) -> pa.DataType:
    """Lists without nulls."""
    return pa.list_(required("element", kind))


# Arrow's type for values of a type hint, or of a generic one by its origin: a text for words, and
# for free-form data, as JSON. An array is compared whole: numpy's versions spell it differently.
_KINDS: dict[Any, pa.DataType] = {
    **dict.fromkeys((str, Literal, Mapping, list), pa.string()),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    NDArray[np.int32]: list_of(pa.int32()),
    NDArray[np.float32]: list_of(pa.float32()),
    NDArray[np.float64]: list_of(pa.float64()),
}
_NOT_STORED: dict[type, set[str]] = {Row: {"session_id", "group", "rollout", "failed"}}
"""Fields that follow from the rollout."""

_ADDED: dict[type, list[pa.Field]] = {
    Row: [pa.field("advantages", list_of(pa.float64()))],
    Rollout: [pa.field("final_reward", pa.float64())],
}


def _fields(kind: type) -> list[pa.Field]:
    """A column for each field of a record."""
    hints = get_type_hints(kind, include_extras=True)
    names = [name for name in hints if name not in _NOT_STORED.get(kind, ())]
    return [*(_field(name, hints[name]) for name in names), *_ADDED.get(kind, ())]


def _field(name: str, hint: Any) -> pa.Field:
    may_lack = get_origin(hint) is NotRequired
    options = get_args(hint) if may_lack or get_origin(hint) in (Union, UnionType) else (hint,)
    (kind,) = (option for option in options if option is not NoneType)
    return pa.field(name, _kind(kind), nullable=may_lack or len(options) > 1)


def _kind(hint: Any) -> pa.DataType:
    origin = get_origin(hint)
    if origin is tuple:
        return list_of(_kind(get_args(hint)[0]))
    if is_dataclass(hint) or is_typeddict(hint):
        return pa.struct(_fields(hint))
    return _KINDS[hint if hint in _KINDS else origin]


_OF_A_STORED = ("phase", "step", "dataset")
SCHEMA = pa.schema(
    [
        *(_field(name, get_type_hints(StoredRollout)[name]) for name in _OF_A_STORED),
        *_fields(Rollout),
    ]
)
_ARRAYS = ("token_ids", "logprobs", "given_rewards", "advantages")


# -- writing --------------------------------------------------------------------------------------


def table_of(stored: Sequence[StoredRollout]) -> pa.Table:
    """Rollouts as a table, with the remembered secrets masked in all texts."""
    return pa.Table.from_pylist([_data(one) for one in stored], SCHEMA)


def _data(one: StoredRollout) -> dict[str, Any]:
    data: dict[str, Any] = _plain(one.rollout)
    for row, advantages in zip(data["rows"], one.advantages or (), strict=bool(one.advantages)):
        row["advantages"] = advantages
    return data | {
        **{name: getattr(one, name) for name in _OF_A_STORED},
        "env_config": _json(masked(plain(one.rollout.env_config))),
        "error": masked(data["error"]),
        "final_reward": finite(one.rollout.final_reward),
    }


def _plain(value: Any, name: str = "") -> Any:
    """A value of the column `name`, as Arrow takes it. It takes the columns of a dict only."""
    if isinstance(value, str):
        return _text(value)
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name), one.name) for one in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item, name) for item in value]
    if isinstance(value, Mapping) and name == "written":
        return {key: _plain(part, key) for key, part in value.items()}
    return _json(plain(value)) if isinstance(value, Mapping | list) else value


def _text(value: str) -> str:
    return clean_text(mask_known(value))


def _json(value: Any) -> str:
    """Plain data as JSON. Secrets are masked before JSON escapes them."""
    return json.dumps(map_texts(value, mask_known), ensure_ascii=False, allow_nan=False)


# -- reading --------------------------------------------------------------------------------------


def rollouts_of(table: pa.Table) -> Iterator[StoredRollout]:
    """The rollouts of a table of `SCHEMA`. Raises DamagedFile for one that cannot be."""
    others = table.drop_columns(["rows"]).to_pylist()
    for data, rows in zip(others, table.column("rows"), strict=True):
        yield _stored(data, _rows_of(rows.values))


def _rows_of(structs: pa.StructArray) -> list[dict[str, Any]]:
    """The rows of a rollout, their numbers as arrays."""
    table, names = pa.Table.from_struct_array(structs), list(_ARRAYS)
    rows: list[dict[str, Any]] = table.drop_columns(names).to_pylist()
    for name in names:
        for row, numbers in zip(rows, table.column(name), strict=True):
            content = numbers.values
            row[name] = None if content is None else content.to_numpy(zero_copy_only=False)
    return rows


def _stored(data: dict[str, Any], rows: list[dict[str, Any]]) -> StoredRollout:
    phase, step, dataset = (data.pop(name) for name in _OF_A_STORED)
    del data["final_reward"]
    for name, allowed in (
        ("reward_placement", REWARD_PLACEMENTS),
        ("final_reward_placement", FINAL_REWARDS),
    ):
        if data[name] not in allowed:
            raise DamagedFile(f"{name} is {data[name][:60]!r}")
    episodes = tuple(_episode_of(episode) for episode in data["episodes"])
    if [episode.index for episode in episodes] != list(range(len(episodes))):
        raise DamagedFile("the episodes are not numbered in their order")
    advantages = tuple(row.pop("advantages") for row in rows)
    known = bool(rows) and all(values is not None for values in advantages)
    if known and any(len(a) != len(r["token_ids"]) for a, r in zip(advantages, rows, strict=True)):
        raise DamagedFile("advantages do not fit the rows")
    place = {name: data[name] for name in ("session_id", "group")} | {"rollout": data["index"]}
    changes = {
        "env_config": _object(data["env_config"], "env_config"),
        "task_data": _object(data["task_data"], "task_data"),
        "episodes": episodes,
        "rows": tuple(_row_of(row, place, episodes) for row in rows),
    }
    return StoredRollout(
        Rollout(**data | changes), phase, step, advantages if known else None, dataset
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
    messages = None if written is None else tuple(map(_message_of, written))
    data |= {name: tuple(data[name]) for name in ("starts", "ends")}
    return Episode(steps=steps, written=messages, **data)


def _message_of(data: dict[str, Any]) -> Message:
    known = {key: value for key, value in data.items() if value is not None}
    if "tool_calls" in known:
        try:
            known["tool_calls"] = checked_calls(json.loads(known["tool_calls"]))
        except (ValueError, RecursionError):
            raise DamagedFile("the calls of a message are none") from None
    return known  # type: ignore[return-value] # the columns are those of a message


def _step_of(data: dict[str, Any]) -> Step:
    info, rewards = _object(data.pop("info"), "info"), data.pop("token_rewards")
    return Step(info=info, token_rewards=None if rewards is None else tuple(rewards), **data)


def _row_of(row: dict[str, Any], place: Mapping[str, Any], episodes: Sequence[Episode]) -> Row:
    length = len(row["token_ids"])
    for name in ("logprobs", "given_rewards"):
        if row[name] is not None and len(row[name]) != length:
            raise DamagedFile("the lists of a row have different lengths")
    spans = tuple(StepSpan(**span) for span in row.pop("spans"))
    for span in spans:
        if not 0 <= span.start <= span.stop <= length:
            raise DamagedFile(f"a span from {span.start} to {span.stop} lies outside its row")
        episode = episodes[span.episode] if 0 <= span.episode < len(episodes) else None
        if episode is None or not 0 <= span.step < len(episode.steps):
            raise DamagedFile(f"a span names step {span.step} of episode {span.episode}")
    return Row(spans=spans, **place, **row)
