"""What an engine is: to those who sample from it, and to a trainer.

`Engine` is enough for an agent. A trainer also hands over weights, which `TrainableEngine` takes.
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
    `release` forgets all about sessions (open requests, caches); unknown ids are ignored.
    `tokenizer` is None for an engine that answers messages with text alone.
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
"""Joins the lists of all ranks, in their order; every rank must call it."""


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """The weights that a trainer hands to an engine.

    Args:
        model: the trained module, without the wrappers of distributed training.
        version: the optimizer's step; what is sampled from now on records it.
        directory: where an engine may write weights for others to read.
        changed: False where the weights are those of the update before this one.
        rank: the number of this process among those that train together.
        gather: joins lists of all ranks.
    """

    model: Any
    version: int
    directory: Path
    changed: bool = True
    rank: int = 0
    gather: Gather = field(default=_alone)


class TrainableEngine(Engine, Protocol):
    """An engine that a trainer keeps at the weights that it trains.

    It samples token ids and their log-probabilities, and so has a tokenizer.
    """

    @property
    def policy_version(self) -> int:
        """The version of the weights that new requests are sampled from."""
        ...

    @property
    def can_generate_ahead(self) -> bool:
        """Whether it may sample while the optimizer works, from a copy of the weights."""
        ...

    def update_weights(self, update: WeightUpdate) -> None:
        """Sample from these weights from now on. Called on every rank before each generation and
        evaluation, with no request open. Raises where the weights cannot be taken."""
        ...

    def finish(self) -> None:
        """This rank's rollouts are over. Called on every rank after each generation and
        evaluation: an engine whose ranks sample in step takes part in what the others play."""
        ...

    def close(self) -> None:
        """End connections; harmless if done twice. The engine is of no use afterwards."""
        ...


def trainable(engine: Any) -> TrainableEngine:
    """The engine, if a trainer can use it. Raises TypeError naming each member that it lacks."""
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
    """Names of a protocol's attributes and methods, those of its bases first."""
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
