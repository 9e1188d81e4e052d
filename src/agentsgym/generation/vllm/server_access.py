"""How another process reaches the servers of an engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentsgym.generation.http import Retries


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """The arguments of a `VLLMEngine` without those that belong to one process. The key is in no
    repr of it."""

    urls: Sequence[str]
    model: str | None
    stop_token_ids: Sequence[int]
    vocab_size: int
    request_timeout: float
    retries: Retries
    api_key: str | None = field(default=None, repr=False)
