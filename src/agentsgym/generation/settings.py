"""The inputs from which an engine is made: the user's settings and the caller's objects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.types.engine import Gather


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The user's settings.

    Args:
        engine: a name in the table of engines; None lets the other settings choose.
        engine_urls: addresses of servers or of an endpoint.
        use_vllm: whether to use TRL's own vLLM.
        engine_capacity: sessions sampled at once; None: the engine's own default.
        served_model: the model's name at `engine_urls`; None: the servers' first.
        key_env: the environment variable with their key; None sends no key.
    """

    engine: str | None = None
    engine_urls: tuple[str, ...] = ()
    use_vllm: bool = False
    engine_capacity: int | None = None
    served_model: str | None = None
    key_env: str | None = None

    @property
    def capacity(self) -> dict[str, Any]:
        """`capacity` as a keyword argument, if it is set."""
        return {} if self.engine_capacity is None else {"capacity": self.engine_capacity}


def _absent() -> Any:
    raise RuntimeError("the caller has no model for an engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The caller's objects. Model and tokenizer are functions, so that an engine that does not
    need them does not load them.

    Args:
        model: returns the causal language model.
        tokenizer: returns its tokenizer.
        vocab_size: returns the number of ids that the model reads; None: the tokenizer's.
        stop_token_ids: ids that end an action; None: those of tokenizer and model.
        sharded: whether the model's parameters are sharded over processes.
        vllm_generation: TRL's `VLLMGeneration`, for a trainer with `use_vllm`.
        gather: joins lists of all ranks.
        dtype: the torch dtype to sample in; None: that of the model's weights.
    """

    model: Callable[[], Any] = _absent
    tokenizer: Callable[[], Any] = _absent
    vocab_size: Callable[[], int | None] = lambda: None
    stop_token_ids: Sequence[int] | None = None
    sharded: bool = False
    vllm_generation: Any = None
    gather: Gather = list
    dtype: Any = None
