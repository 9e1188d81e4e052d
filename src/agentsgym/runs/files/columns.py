"""Rollouts as rows of an Arrow table and back; `docs/run-directory.md` lists the columns.

All data that training needs is restored exactly: ids, log-probabilities, rewards, spans. An
environment's free-form `info`, `env_config` and `task_data` are JSON texts, restored as far as JSON
allows (see `agentsgym.types.text.plain`). No value of an environment can prevent a rollout from
being written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.files.parquet import list_of, required
from agentsgym.types import Episode, Message, Rollout, Row, Step, StepSpan
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
        names = ("rollout", "phase", "step", "dataset")
        mine, theirs = self.advantages or (), other.advantages or ()
        return (
            all(getattr(self, name) == getattr(other, name) for name in names)
            and len(mine) == len(theirs)
            and all(map(np.array_equal, mine, theirs))
        )


# -- columns --------------------------------------------------------------------------------------

_OPTIONAL = {
    "dataset", "final_reward", "error", "system", "written", "anchor", "token_rewards",
    "given_rewards", "advantages", "tool_calls", "tool_call_id", "name",
}  # fmt: skip
"""Columns whose values may be null."""


def _fields(kinds: Mapping[str, pa.DataType]) -> list[pa.Field]:
    return [
        pa.field(name, kind) if name in _OPTIONAL else required(name, kind)
        for name, kind in kinds.items()
    ]


def _structs(kinds: Mapping[str, pa.DataType]) -> pa.DataType:
    return list_of(pa.struct(_fields(kinds)))


_STEP = {
    "index": pa.int64(),
    "kind": pa.string(),
    "observation": pa.string(),
    "action": pa.string(),
    "reward": pa.float64(),
    "penalty": pa.float64(),
    "done": pa.bool_(),
    "malformed": pa.bool_(),
    "truncated": pa.bool_(),
    "info": pa.string(),
    "anchor": pa.string(),
    "token_rewards": list_of(pa.float64()),
}
_MESSAGE = {
    "role": pa.string(),
    "content": pa.string(),
    "tool_calls": pa.string(),
    "tool_call_id": pa.string(),
    "name": pa.string(),
}
_EPISODE = {
    "index": pa.int64(),
    "reward": pa.float64(),
    "score_weight": pa.float64(),
    "stop_reason": pa.string(),
    "continues": pa.bool_(),
    "system": pa.string(),
    "steps": _structs(_STEP),
    "written": _structs(_MESSAGE),
}
_SPAN = {"episode": pa.int64(), "step": pa.int64(), "start": pa.int64(), "stop": pa.int64()}
_NUMBERS = {
    "token_ids": list_of(pa.int32()),
    "logprobs": list_of(pa.float32()),
    "given_rewards": list_of(pa.float64()),
    "advantages": list_of(pa.float64()),
}
_ROW = {
    "begins": pa.string(),
    "rewrites": pa.string(),
    "sampled": pa.bool_(),
    "spans": _structs(_SPAN),
    **_NUMBERS,
}
_ROLLOUT = {
    "session_id": pa.string(),
    "group": pa.int64(),
    "index": pa.int64(),
    "seed": pa.int64(),
    "policy_version": pa.int64(),
    "env_class_path": pa.string(),
    "env_config": pa.string(),
    "task_data": pa.string(),
    "reward_placement": pa.string(),
    "final_reward_placement": pa.string(),
    "final_reward": pa.float64(),
    "error": pa.string(),
    "episodes": _structs(_EPISODE),
    "rows": _structs(_ROW),
}
_OF_A_STORED = {"phase": pa.string(), "step": pa.int64(), "dataset": pa.string()}
SCHEMA = pa.schema(_fields(_OF_A_STORED | _ROLLOUT))

_OUR_WORDS = {"reward_placement", "final_reward_placement", "kind", "begins", "rewrites"}
"""Columns in which no secret of a user is looked for."""


# -- writing --------------------------------------------------------------------------------------


def table_of(stored: Sequence[StoredRollout]) -> pa.Table:
    """Rollouts as a table, with the remembered secrets masked in all texts."""
    rollouts = [one.rollout for one in stored]
    configs = {id(rollout.env_config): rollout.env_config for rollout in rollouts}
    texts = {key: _json(masked(plain(config))) for key, config in configs.items()}
    advantages = [own for one in stored for own in one.advantages or [None] * len(one.rollout.rows)]
    columns = _columns(
        rollouts,
        _ROLLOUT,
        env_config=[texts[id(rollout.env_config)] for rollout in rollouts],
        task_data=_jsons(rollout.task_data for rollout in rollouts),
        final_reward=[finite(rollout.final_reward) for rollout in rollouts],
        error=[None if r.error is None else _text(mask_secrets(r.error)) for r in rollouts],
        episodes=_episodes([rollout.episodes for rollout in rollouts]),
        rows=_rows([rollout.rows for rollout in rollouts], advantages),
    )
    return pa.Table.from_arrays([*_columns(stored, _OF_A_STORED), *columns], schema=SCHEMA)


def _episodes(lists: Sequence[Sequence[Episode]]) -> pa.Array:
    episodes = list(chain.from_iterable(lists))
    steps = [episode.steps for episode in episodes]
    info = _jsons(step.info for step in chain.from_iterable(steps))
    written = [
        episode.written and [_written(message) for message in episode.written]
        for episode in episodes
    ]
    return _lists(lists, _EPISODE, steps=_lists(steps, _STEP, info=info), written=written)


def _written(message: Message) -> dict[str, str]:
    texts = {key: _text(value) for key, value in message.items() if isinstance(value, str)}
    if "tool_calls" in message:
        texts["tool_calls"] = _json(plain(message["tool_calls"]))
    return texts


def _rows(lists: Sequence[Sequence[Row]], advantages: Sequence[Floats | None]) -> pa.Array:
    spans = _lists([row.spans for row in chain.from_iterable(lists)], _SPAN)
    return _lists(lists, _ROW, spans=spans, advantages=advantages)


def _lists(
    lists: Sequence[Sequence[Any]], kinds: Mapping[str, pa.DataType], **given: Any
) -> pa.Array:
    """Lists of records; `given` are columns of all of them, one after another."""
    records = list(chain.from_iterable(lists))
    structs = pa.StructArray.from_arrays(_columns(records, kinds, **given), fields=_fields(kinds))
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, structs, type=_structs(kinds))


def _columns(
    records: Sequence[Any], kinds: Mapping[str, pa.DataType], **given: Any
) -> list[pa.Array]:
    """A column of each kind: what is given for it, or else the records' attributes."""
    columns = []
    for name, kind in kinds.items():
        values = given.get(name)
        if values is None:
            values = list(map(attrgetter(name), records))
            if kind == pa.string() and name not in _OUR_WORDS:
                values = [None if value is None else _text(value) for value in values]
        columns.append(values if isinstance(values, pa.Array) else pa.array(values, kind))
    return columns


def _text(value: Any) -> str:
    return clean_text(mask_known(value))


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def _jsons(values: Iterable[Any]) -> list[str]:
    values = list(values)
    if not knows_secrets():
        with suppress(Exception):  # one is not plain yet; a foreign class may raise anything
            return [clean_text(_ENCODER.encode(value)) for value in values]
    return [_json(plain(value)) for value in values]


def _json(value: Any) -> str:
    """Plain data as JSON. Secrets are masked before JSON escapes them."""
    return _ENCODER.encode(_masked(value))


def _masked(value: Any) -> Any:
    """Free-form data with the remembered secrets replaced in its texts and keys."""
    if isinstance(value, str):
        return mask_known(value)
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if isinstance(value, dict):
        return {mask_known(key): _masked(item) for key, item in value.items()}
    return value


# -- reading --------------------------------------------------------------------------------------


def rollouts_of(table: pa.Table) -> Iterator[StoredRollout]:
    """The rollouts of a table of `SCHEMA`. Raises DamagedFile for one that cannot be."""
    others = table.drop_columns(["rows"]).to_pylist()
    for data, rows in zip(others, table.column("rows"), strict=True):
        yield _stored(data, _rows_of(rows.values))


def _rows_of(structs: pa.StructArray) -> list[dict[str, Any]]:
    """The rows of a rollout, their numbers as arrays."""
    table, names = pa.Table.from_struct_array(structs), list(_NUMBERS)
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
