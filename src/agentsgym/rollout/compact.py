"""A finished rollout as bytes, for the way from a rollout worker to its learner.

Every field comes back equal, numbers bit by bit. A field with a number per token is an array of the
narrowest type that holds its values exactly, a text that occurs several times is stored once, and
the whole is compressed. The task and the configuration are left out: who requested the rollout has
them. Both ends must run the same version of agentsgym.
"""

import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentsgym.types import Episode, Message, Rollout, Row, Step, StepSpan

_INTS = "BHIq"
_FLOATS = "fd"
# Level 1 takes a third of the default's time, and the bytes are a tenth more.
_COMPRESSION = 1
_LEFT_OUT = frozenset({"env_config", "task_data"})


def to_bytes(rollout: Rollout) -> bytes:
    """The rollout without its task and configuration. What an environment told in `info` has become
    plain data when it was recorded, so there is nothing that could not be sent."""
    texts: dict[str, str] = {}
    return zlib.compress(pickle.dumps(_packed(rollout, texts), protocol=5), _COMPRESSION)


def from_bytes(
    data: bytes, *, env_config: Mapping[str, Any], task_data: Mapping[str, Any]
) -> Rollout:
    """The rollout that `to_bytes` packed, which must be of a process that is trusted."""
    values = pickle.loads(zlib.decompress(data))  # noqa: S301 - of a worker of this process
    known: dict[str, Any] = {"env_config": env_config, "task_data": task_data}
    return Rollout(**known, **_restored(Rollout, values))


def _packed(record: Any, texts: dict[str, str]) -> tuple[Any, ...]:
    """The values of a record's fields in their order; `texts` are those seen so far."""
    kind: Any = type(record)
    return tuple(_TO.get((kind, name), _one)(getattr(record, name), texts) for name in _names(kind))


def _restored(kind: Any, values: Sequence[Any]) -> dict[str, Any]:
    return {
        name: _FROM[kind, name](value) if (kind, name) in _FROM else value
        for name, value in zip(_names(kind), values, strict=True)
    }


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.name not in _LEFT_OUT)


def _one(value: Any, texts: dict[str, str]) -> Any:
    """The value; of equal texts always the same object, which pickle then stores once."""
    return texts.setdefault(value, value) if type(value) is str else value


def _narrow(values: NDArray[Any], codes: str) -> bytes:
    """The code of the first type in `codes` that holds the values exactly, and their bytes."""
    for code in codes[:-1]:
        narrow = values.astype(np.dtype(code))
        if narrow.astype(values.dtype).tobytes() == values.tobytes():
            return code.encode() + narrow.tobytes()
    return codes[-1].encode() + values.tobytes()


def _wide(data: bytes) -> NDArray[Any]:
    return np.frombuffer(data, np.dtype(data[:1].decode()), offset=1)


def _ints(values: Sequence[int], texts: Any = None) -> bytes:
    return _narrow(np.array(values, np.int64), _INTS)


def _floats(values: Sequence[float] | None, texts: Any = None) -> bytes | None:
    if values is None:
        return None
    with np.errstate(over="ignore"):
        return _narrow(np.array(values, np.float64), _FLOATS)


def _numbers(data: bytes | None) -> tuple[Any, ...] | None:
    return None if data is None else tuple(_wide(data).tolist())


def _spans(spans: Sequence[StepSpan], texts: Any) -> bytes:
    return _ints([n for span in spans for n in (span.episode, span.step, span.start, span.stop)])


def _from_spans(data: bytes) -> tuple[StepSpan, ...]:
    return tuple(StepSpan(*four) for four in _wide(data).reshape(-1, 4).tolist())


def _messages(messages: Sequence[Message], texts: dict[str, str]) -> list[str]:
    """Role, content, role, content, …"""
    return [_one(text, texts) for m in messages for text in (m["role"], m["content"])]


def _from_messages(texts: Sequence[str]) -> tuple[Message, ...]:
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return tuple(Message(role=role, content=content) for role, content in pairs)


def _all(records: Sequence[Any], texts: dict[str, str]) -> list[tuple[Any, ...]]:
    return [_packed(record, texts) for record in records]


def _from_all(kind: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    return lambda given: tuple(kind(**_restored(kind, values)) for values in given)


_TO: Mapping[tuple[type, str], Callable[[Any, dict[str, str]], Any]] = {
    (Row, "token_ids"): _ints,
    (Row, "agent_token_mask"): _ints,
    (Row, "logprobs"): _floats,
    (Row, "per_token_rewards"): _floats,
    (Row, "spans"): _spans,
    (Step, "token_rewards"): _floats,
    (Episode, "messages"): _messages,
    (Episode, "steps"): _all,
    (Rollout, "episodes"): _all,
    (Rollout, "rows"): _all,
}
"""How the fields are packed that are not sent as they are."""

_FROM: Mapping[tuple[type, str], Callable[[Any], Any]] = {
    (Row, "token_ids"): _numbers,
    (Row, "agent_token_mask"): _numbers,
    (Row, "logprobs"): _numbers,
    (Row, "per_token_rewards"): _numbers,
    (Row, "spans"): _from_spans,
    (Step, "token_rewards"): _numbers,
    (Episode, "messages"): _from_messages,
    (Episode, "steps"): _from_all(Step),
    (Rollout, "episodes"): _from_all(Episode),
    (Rollout, "rows"): _from_all(Row),
}
