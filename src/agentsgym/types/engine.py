"""The protocols of an engine.

`Engine` is enough for sampling. A trainer also passes weights, which a `TrainableEngine` accepts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agentsgym.types.actions import (
    EngineStats,
    GenerationRequest,
    GenerationResult,
    SamplingParams,
)
from agentsgym.types.protocols import Agent, Tokenizer


class Engine(Protocol):
    """Samples actions for many sessions at once.

    A session has at most one request open. `poll` returns the results that are ready, waiting
    for at least one while any request is open; with none open it returns an empty list. A request
    that fails comes back as a result with `finish_reason="error"`, never as an exception.
    `release` drops all data of sessions (open requests, caches); unknown ids are ignored.
    `tokenizer` is None for an engine that takes messages and only returns text.
    """

    tokenizer: Tokenizer | None
    capacity: int

    def submit(self, requests: Sequence[GenerationRequest]) -> None: ...

    def poll(self) -> list[GenerationResult]: ...

    def cancel(self, session_ids: Sequence[str]) -> None: ...

    def release(self, session_ids: Sequence[str]) -> None: ...

    @property
    def stats(self) -> EngineStats: ...


def _alone(values: list[Any]) -> list[Any]:
    return values


Gather = Callable[[list[Any]], list[Any]]
"""Joins the lists of all ranks, in rank order; every rank must call it."""


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """The weights that a trainer passes to an engine.

    Args:
        model: the trained module, without the wrappers of distributed training.
        version: the optimizer's step; tokens sampled from now on record it.
        directory: a folder for weight files that other processes read.
        changed: False if the weights are the same as in the previous update.
        rank: the number of this process among the training processes.
        gather: joins lists of all ranks.
        sampling: whether requests may be open. Then the engine returns as soon as `model` may
            change; open requests are answered with their old weights, and new ones, in time, with
            these. Only for an engine that `can_update_while_sampling`.
    """

    model: Any
    version: int
    directory: Path
    changed: bool = True
    rank: int = 0
    gather: Gather = field(default=_alone)
    sampling: bool = False


@dataclass(frozen=True, slots=True)
class WeightTransfer:
    """How weights got to an engine's servers: `bytes` were written for the last version, and the
    slowest server took `slowest` seconds for the last one that it took, until its open requests
    were answered included."""

    bytes: int
    slowest: float


class TrainableEngine(Engine, Protocol):
    """An engine that a trainer can update with the weights that it trains.

    It samples token ids with their log-probabilities, so it must have a tokenizer. It may also
    have `can_update_while_sampling` (the function of this name reads it).
    """

    @property
    def policy_version(self) -> int:
        """The version of the weights that new requests use."""
        ...

    @property
    def can_generate_ahead(self) -> bool:
        """Whether it can sample during the optimizer's work, from a copy of the weights."""
        ...

    def update_weights(self, update: WeightUpdate) -> None:
        """Sample from these weights from now on. Called on every rank before each generation and
        evaluation, with no request open unless `update.sampling`. Raises if the weights cannot be
        used."""
        ...

    def finish(self) -> None:
        """This rank's rollouts are finished. Called on every rank after each generation and
        evaluation: if the ranks of an engine sample in step, it joins the calls of the others."""
        ...

    def close(self) -> None:
        """Close connections; may be called twice. The engine cannot be used afterwards."""
        ...


def can_update_while_sampling(engine: Any) -> bool:
    """Whether an engine accepts a `WeightUpdate` with `sampling`, from another thread than the one
    that samples: whether it has a true attribute `can_update_while_sampling`."""
    return bool(getattr(engine, "can_update_while_sampling", False))


def trainable(engine: Any) -> TrainableEngine:
    """The engine, if a trainer can use it. Raises TypeError with the names of missing members."""
    missing = [name for name in _members(TrainableEngine) if not hasattr(engine, name)]
    if missing:
        raise TypeError(
            f"{type(engine).__name__} can't be trained with: it lacks {', '.join(missing)} "
            "(agentsgym.types.TrainableEngine; docs/engines.md)"
        )
    if engine.tokenizer is None:
        raise TypeError(
            f"{type(engine).__name__} has no tokenizer: it answers with text alone, and without "
            "the sampled token ids nothing can be trained"
        )
    found: TrainableEngine = engine
    return found


def _members(protocol: type) -> list[str]:
    """Names of a protocol's attributes and methods, those of its base classes first."""
    names: dict[str, None] = {}
    for base in reversed(protocol.__mro__):
        if base not in (object, Protocol) and getattr(base, "_is_protocol", False):
            declared = [*getattr(base, "__annotations__", ()), *vars(base)]
            names |= dict.fromkeys(name for name in declared if not name.startswith("_"))
    return list(names)


@runtime_checkable
class EngineAgent(Agent, Protocol):
    """An agent whose actions an engine samples, so that ids and logprobs are exact."""

    engine: Engine
    sampling: SamplingParams


def wait_for(engine: Engine, session_id: str) -> GenerationResult:
    """Poll until the session's only open request is answered; for callers that play alone."""
    while True:
        for result in engine.poll():
            if result.session_id == session_id:
                return result
