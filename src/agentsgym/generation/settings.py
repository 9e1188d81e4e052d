"""The inputs from which an engine is made: the user's settings and the caller's objects."""

import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from agentsgym.types.names import ConfigError
from agentsgym.types.protocols import Gather
from agentsgym.types.settings import Count, Section, Text, Texts
from agentsgym.types.text import docs_page, remember_secret

logger = logging.getLogger(__name__)

MODEL_FOLDER = "model"
"""The folder of a written model in the directory of launched servers."""

SERVE_MODEL = "serve-model"
"""The value of `engine.command` that serves with the embedded engine."""


@dataclass(frozen=True, slots=True)
class ModelToServe:
    """A model that servers are started with, its tokenizer, the torch dtype in which they compute
    (None: the model's), and the most tokens of a context that are needed (None: what it has)."""

    model: Any
    tokenizer: Any
    dtype: Any = None
    context: int | None = None


MOST_SERVERS = 1024


class EngineSettings(Section):
    """The `engine` section: the engine that samples the actions. In a file, `engine: TEXT` sets
    `engine.name`."""

    main_key = "name"

    name: Text | None = Field(
        default=None,
        description="The engine (docs/engines.md); None: vllm if urls or launch is set, otherwise "
        "embedded.",
    )
    urls: Texts = Field(
        default_factory=list,
        description="Base URLs of running vLLM servers, or the address of a chat endpoint.",
    )
    served_model: Text | None = Field(
        default=None,
        description="The model's name on the servers; None: the first model that each server "
        "lists.",
    )
    key_env: Text | None = Field(
        default=None,
        description="Environment variable that holds the key for urls; None: no key is sent.",
    )
    take_over: bool = Field(
        default=False,
        description="Use servers in urls even if another training run holds them; that run then "
        "ends.",
    )
    capacity: Count | None = Field(
        default=None,
        description="Rollouts sampled concurrently; None: 256 in training, 64 otherwise, 16 with a "
        "chat endpoint.",
    )
    cache_gib: float | None = Field(
        default=None,
        gt=0,
        description="Maximum size of the embedded engine's KV cache in GiB; None: most of the free "
        "memory.",
    )
    launch: int = Field(
        default=0,
        ge=0,
        le=MOST_SERVERS,
        description="Servers to start on this machine, one on each GPU without a training process.",
    )
    command: Text | None = Field(
        default=None,
        description="Program for launched servers: a vllm executable, the Python of an environment "
        "with vLLM, or serve-model for the embedded engine; None: this environment's vllm.",
    )
    launch_args: Texts = Field(
        default_factory=list, description="Additional arguments for the command."
    )
    seeds: bool = Field(
        default=True,
        description="Send a seed with each request to vLLM servers, so that a repeated run samples "
        "alike; vLLM is faster without seeds.",
    )

    @property
    def reaches_out(self) -> bool:
        """Whether it names servers, commands or keys."""
        return bool(self.urls or self.key_env or self.launch)

    @property
    def capacity_option(self) -> dict[str, Any]:
        """`capacity` as a keyword argument, if it is set."""
        return {} if self.capacity is None else {"capacity": self.capacity}


class ChatEndpoint(Section):
    """A section that names one chat endpoint."""

    urls: Texts = Field(min_length=1, max_length=1, description="The endpoint's base URL.")
    served_model: Text = Field(description="The model's name at the endpoint.")
    key_env: Text | None = Field(
        default=None, description="Environment variable that holds the key; None: no key is sent."
    )
    capacity: Count | None = Field(
        default=None, description="Maximum number of open requests; None: 16."
    )

    def as_engine(self) -> EngineSettings:
        """The engine that asks it."""
        return EngineSettings(name="chat", **self.model_dump())


class MissingKey(ConfigError):
    """The environment variable that should hold an endpoint's key is not set."""


def read_key(key_env: str | None) -> str | None:
    """The key in the environment variable `key_env`, masked from now on; None for None.

    Raises MissingKey if the variable is unset or empty.
    """
    if key_env is None:
        return None
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise MissingKey(
            f"the endpoint's key is missing: set the environment variable {key_env}, or name none "
            "(key_env) for an endpoint that needs no key"
        )
    remember_secret(key)
    return key


def _absent() -> Any:
    raise RuntimeError("the caller has no model for an engine")


def new_directory() -> Path:
    """A new directory for temporary files."""
    return Path(tempfile.mkdtemp(prefix="agentsgym-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The caller's objects. Model and tokenizer are functions, so that an engine that does not
    need them does not load them.

    Args:
        model: returns the causal language model.
        tokenizer: returns its tokenizer.
        vocab_size: returns the number of ids that the model reads; None: the tokenizer's.
        sharded: whether the model's parameters are sharded over processes.
        gather: joins lists of all ranks.
        dtype: the torch dtype to sample in; None: that of the model's weights.
        rank: the number of this process among them.
        learns: whether these processes train, each on a GPU of its own.
        served: returns what servers are started with.
        directory: returns a directory for the logs of such servers.
        note: called with a sentence about what is being waited for.
    """

    model: Callable[[], Any] = _absent
    tokenizer: Callable[[], Any] = _absent
    vocab_size: Callable[[], int | None] = lambda: None
    sharded: bool = False
    gather: Gather = list
    dtype: Any = None
    rank: int = 0
    learns: bool = False
    served: Callable[[], ModelToServe] = _absent
    directory: Callable[[], Path] = new_directory
    note: Callable[[str], None] = logger.info

    def whole_model(self, engine: str) -> Any:
        """The model, for the class `engine` that samples from it in each process. Raises ValueError
        for a model that is sharded over processes."""
        if self.sharded:
            raise ValueError(
                f"{engine} needs the whole model in each process, but FSDP or DeepSpeed ZeRO-3 "
                "spread it: with FSDP2 (fsdp_version: 2) name vLLM servers in engine.urls, or "
                f"train with DDP or ZeRO-2 ({docs_page('Several GPUs and machines')})"
            )
        return self.model()
