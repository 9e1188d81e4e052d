"""What engines read from a model: adapters, positions, ends of turns; and the error for one that an
engine does not support. Importing it stays light.
"""

from collections.abc import Iterable
from typing import Any

from agentsgym.types.text import docs_page


def is_adapted(model: Any) -> bool:
    """Whether PEFT wraps a model."""
    return hasattr(model, "peft_config") and hasattr(model, "active_adapter")


def without_adapter(model: Any) -> Any:
    """The Hugging Face model that PEFT wraps, or the model itself."""
    return model.get_base_model() if is_adapted(model) else model


def positions_of(config: Any) -> int | None:
    """The longest sequence that a model of `config` reads; None: no bound.

    Where positions change beyond a length (rope types dynamic and longrope), it is that length: a
    longer row would give its earlier tokens other probabilities than those they were sampled with.
    """
    positions: int | None = getattr(config, "max_position_embeddings", None)
    for rope in rope_parameters(config):
        if rope.get("rope_type") in ("dynamic", "longrope"):
            first = rope.get("original_max_position_embeddings")
            first = first or getattr(config, "original_max_position_embeddings", None)
            positions = first or positions
    return positions


def rope_parameters(config: Any) -> list[dict[str, Any]]:
    """The parameters of rotary positions: one for all layers, or one for each type of layer."""
    ropes = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in ropes.values() if isinstance(value, dict)]
    return nested or [ropes]


def end_of_turn_ids(tokenizer: Any, model: Any) -> tuple[int, ...]:
    """The tokenizer's end-of-sequence id and all ids in the model's generation config."""
    generation = getattr(model, "generation_config", None)
    ends = getattr(generation, "eos_token_id", None)
    ids: set[int] = set(_as_ids(getattr(tokenizer, "eos_token_id", None))) | set(_as_ids(ends))
    return tuple(sorted(ids))


def _as_ids(value: int | Iterable[int] | None) -> Iterable[int]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else value


class EngineUnavailable(RuntimeError):
    """No server answers, or a server cannot be used; the message says which and why."""


class UnsupportedModelError(ValueError):
    """The model needs a feature that the embedded engine lacks; the message says which engines
    may have it. `reason` is the message without that advice."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{reason}; the plain engine runs it slower: leave engine out or set it to plain; vLLM "
            f"may run it: set engine.urls ({docs_page('Engines and models')})"
        )
