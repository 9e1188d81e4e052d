"""Rollouts as rows of an Arrow table and back; `docs/run-directory.md` lists the columns.

All data that training needs is restored exactly: ids, log-probabilities, rewards, the place of
each step's tokens. An environment's free-form `info`, `env_config` and `task_data` are JSON texts,
restored as far as JSON allows (see `agentsgym.types.text.plain`). No value of an environment can
prevent a rollout from being written.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from itertools import pairwise
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agentsgym.runs.files.directory import DamagedFile
from agentsgym.types import Episode, Message, Rollout, Step, ToolCall, ToolSchema
from agentsgym.types.reward_placement import FINAL_REWARDS, REWARD_PLACEMENTS
from agentsgym.types.rows import Floats
from agentsgym.types.supports import Supports
from agentsgym.types.text import clean_text, finite, map_texts, mask_known, masked, plain
from agentsgym.types.tool_actions import checked_calls


@dataclass(frozen=True, slots=True, eq=False)
class StoredRollout:
    """A rollout with its `phase`, the optimizer `step` before which it was played (the policy's
    version), the evaluation set (`dataset`; None if there is only one), and the advantages of its
    rows' tokens (float64, shape (T,) each) if it was trained on; a file has them on the tape."""

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


_CALLS, _TOOLS = tuple[ToolCall, ...], tuple[ToolSchema, ...]
# Arrow's type for values of a type hint, or of a generic one by its origin: a text for words, and
# for free-form data, as JSON. An array is compared whole: numpy's versions spell it differently.
_KINDS: dict[Any, pa.DataType] = {
    **dict.fromkeys((str, Literal, Mapping, _CALLS, _TOOLS), pa.string()),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    NDArray[np.int32]: list_of(pa.int32()),
    NDArray[np.float32]: list_of(pa.float32()),
    NDArray[np.float64]: list_of(pa.float64()),
}
_NOT_STORED: dict[type, set[str]] = {Rollout: {"at", "_rows"}}
_PLACE = ("start", "acts", "stop")
_ADDED: dict[type, list[pa.Field]] = {
    Step: [required(name, pa.int32()) for name in _PLACE],
    Rollout: [
        pa.field("final_reward", pa.float64()),
        required("policy_version", pa.int64()),
        pa.field("advantages", list_of(pa.float64())),
    ],
}
"""Columns that no field of the record is: a step's place on the tape, and what follows from it."""


def _fields(kind: type) -> list[pa.Field]:
    """A column for each field of a record."""
    hints = get_type_hints(kind, include_extras=True)
    names = [name for name in hints if name not in _NOT_STORED.get(kind, ())]
    return [*(_field(name, hints[name]) for name in names), *_ADDED.get(kind, ())]


def _field(name: str, hint: Any) -> pa.Field:
    kind = _without_none(hint)
    return pa.field(name, _kind(kind), nullable=kind is not hint or kind in (_CALLS, _TOOLS))


def _without_none(hint: Any) -> Any:
    """The type of which a field's value is, if it is not None."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    (kind,) = (option for option in options if option is not NoneType)
    return kind


def _kind(hint: Any) -> pa.DataType:
    origin = get_origin(hint)
    if origin is tuple and hint not in _KINDS:
        return list_of(_kind(get_args(hint)[0]))
    if isinstance(hint, type) and is_dataclass(hint):
        return pa.struct(_fields(hint))
    return _KINDS[hint if hint in _KINDS else origin]


_OF_A_STORED = ("phase", "step", "dataset")
SCHEMA = pa.schema(
    [
        *(_field(name, get_type_hints(StoredRollout)[name]) for name in _OF_A_STORED),
        *_fields(Rollout),
    ]
)


# -- writing --------------------------------------------------------------------------------------


def table_of(stored: Sequence[StoredRollout]) -> pa.Table:
    """Rollouts as a table, with the remembered secrets masked in all texts."""
    return pa.Table.from_pylist([_data(one) for one in stored], SCHEMA)


def _data(one: StoredRollout) -> dict[str, Any]:
    rollout, places = one.rollout, iter(one.rollout.at.tolist())
    data = {name: _plain(getattr(rollout, name)) for name in _OF_A_ROLLOUT}
    advantages = None if one.advantages is None else rollout.on_tape(one.advantages)
    return data | {
        **{name: getattr(one, name) for name in _OF_A_STORED},
        "env_config": _json(masked(plain(rollout.env_config))),
        "error": masked(data["error"]),
        "episodes": [_episode(episode, places) for episode in rollout.episodes],
        "final_reward": finite(rollout.final_reward),
        "policy_version": rollout.policy_version,
        "advantages": advantages,
    }


_OF_A_ROLLOUT = [
    one.name for one in fields(Rollout) if one.name not in {*_NOT_STORED[Rollout], "episodes"}
]
_OF_AN_EPISODE = [one.name for one in fields(Episode) if one.name not in ("steps", "unanswered")]
_OF_A_STEP = [one.name for one in fields(Step)]


def _episode(episode: Episode, places: Iterator[list[int]]) -> dict[str, Any]:
    rest = episode.unanswered
    return {
        **{name: _plain(getattr(episode, name)) for name in _OF_AN_EPISODE},
        "steps": [_step(step, next(places)) for step in episode.steps],
        "unanswered": None if rest is None else _step(rest, next(places)),
    }


def _step(step: Step, place: Sequence[int]) -> dict[str, Any]:
    data = {name: _plain(getattr(step, name)) for name in _OF_A_STEP}
    data["tools"] = _json(plain(list(step.tools))) if step.tools else None
    return data | dict(zip(_PLACE, place, strict=True))


def _plain(value: Any) -> Any:
    """A value as Arrow takes it."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Message):
        calls = _json(plain(list(value.tool_calls))) if value.tool_calls else None
        own = {name: _plain(getattr(value, name)) for name in Message.__match_args__}
        return own | {"tool_calls": calls}
    if isinstance(value, Supports):
        return {name: getattr(value, name) for name in Supports.__match_args__}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _json(plain(value)) if isinstance(value, Mapping) else value


def _text(value: str) -> str:
    return clean_text(mask_known(value))


def _json(value: Any) -> str:
    """Plain data as JSON. Secrets are masked before JSON escapes them."""
    return json.dumps(map_texts(value, mask_known), ensure_ascii=False, allow_nan=False)


# -- reading --------------------------------------------------------------------------------------


def rollouts_of(table: pa.Table) -> Iterator[StoredRollout]:
    """The rollouts of a table of `SCHEMA`. Raises DamagedFile for one that cannot be."""
    hints = _hints(StoredRollout) | _hints(Rollout) | {"advantages": NDArray[np.float64]}
    names = (*_OF_A_STORED, "advantages", *_OF_A_ROLLOUT, "episodes")
    for chunk in table.to_batches():
        columns = [_values(chunk.column(name), name, hints[name]) for name in names]
        for phase, step, dataset, advantages, *values in zip(*columns, strict=True):
            rollout = _rollout(dict(zip(names[4:], values, strict=True)))
            if advantages is not None and len(advantages) != len(rollout.token_ids):
                raise DamagedFile("advantages do not fit the tokens")
            of_rows = None if advantages is None else tuple(rollout.by_row(advantages))
            yield StoredRollout(rollout, phase, step, of_rows, dataset)


def _rollout(data: dict[str, Any]) -> Rollout:
    for name, allowed in (
        ("reward_placement", REWARD_PLACEMENTS),
        ("final_reward_placement", FINAL_REWARDS),
    ):
        if data[name] not in allowed:
            raise DamagedFile(f"{name} is {data[name][:60]!r}")
    if [episode.index for episode, _ in data["episodes"]] != list(range(len(data["episodes"]))):
        raise DamagedFile("the episodes are not numbered in their order")
    places = [place for _, places in data["episodes"] for place in places]
    data["episodes"] = tuple(episode for episode, _ in data["episodes"])
    return Rollout(**data, at=np.array(places, np.int32).reshape(-1, 3))


_hints = cache(partial(get_type_hints, include_extras=True))


def _values(column: pa.Array, name: str, hint: Any) -> list[Any]:
    """The values of a column, for a field of this type. They are made column by column; one by one
    takes four times as long. A step comes with its place on the tape, an episode with those of its
    nodes."""
    kind = _without_none(hint)
    if column.null_count:
        absent = () if kind in (_CALLS, _TOOLS) else None
        there = iter(_values(column.drop_null(), name, hint))
        return [next(there) if known else absent for known in column.is_valid().to_pylist()]
    if isinstance(kind, type) and is_dataclass(kind):
        return _records(column, kind)
    if pa.types.is_list(column.type):
        edges = column.offsets.to_pylist()
        pieces = [slice(a - edges[0], b - edges[0]) for a, b in pairwise(edges)]
        inner = column.values.slice(edges[0], edges[-1] - edges[0])
        if kind in _KINDS:
            numbers = inner.to_numpy(zero_copy_only=False)
            return [numbers[piece] for piece in pieces]
        values = _values(inner, name, get_args(kind)[0])
        return [tuple(values[piece]) for piece in pieces]
    flat: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    if kind in (_CALLS, _TOOLS) or get_origin(kind) is Mapping:
        return [_parsed(text, name, kind) for text in flat]
    return flat


def _records(column: pa.StructArray, kind: type) -> list[Any]:
    """The records that a column of structs has."""
    parts = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
    values = {name: _values(parts[name], name, hint) for name, hint in _hints(kind).items()}
    if kind is Step:
        places = zip(*(parts[name].to_pylist() for name in _PLACE), strict=True)
        return list(zip(map(Step, *values.values()), places, strict=True))
    if kind is not Episode:
        return list(map(kind, *values.values()))
    nodes = [
        steps if rest is None else (*steps, rest)
        for steps, rest in zip(values["steps"], values["unanswered"], strict=True)
    ]
    values["steps"] = [tuple(step for step, _ in steps) for steps in values["steps"]]
    values["unanswered"] = [rest and rest[0] for rest in values["unanswered"]]
    places_of = ([place for _, place in own] for own in nodes)
    return list(zip(map(Episode, *values.values()), places_of, strict=True))


def _parsed(text: str, name: str, kind: Any) -> Any:
    """What a JSON text says, for a field of this type."""
    alone = get_origin(kind) is Mapping
    try:
        value = json.loads(text)
        if kind == _CALLS:
            return checked_calls(value)
    except (ValueError, RecursionError):
        value = None
    objects = [value] if alone else value
    if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
        raise DamagedFile(f"{name} is not {'a JSON object' if alone else 'a list of objects'}")
    return value if alone else tuple(value)
