"""The inputs from which an engine is made: the user's settings and the caller's objects."""

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.types.protocols import Gather

logger = logging.getLogger(__name__)

MODEL_FOLDER = "model"
"""The folder of a written model in the directory of launched servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The model that vLLM servers are started with.

    Args:
        folder: its directory, with its tokenizer.
        name: the name under which it is served.
        dtype: the type in which the servers compute, by torch's name.
        context: the most tokens of a context that are needed; None: what the model has.
        longest: the most tokens of a context that the model has; None: unknown.
        lora_rank: the rank of the adapters that will be loaded; None: there will be none.
    """

    folder: str
    name: str
    dtype: str
    context: int | None = None
    longest: int | None = None
    lora_rank: int | None = None


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
        launch: number of vLLM servers that the engine starts and ends itself.
        command: a vllm executable, or the Python of an environment that has vLLM; None: the vllm of
            this environment.
        launch_args: more arguments of `vllm serve`.
    """

    engine: str | None = None
    engine_urls: tuple[str, ...] = ()
    use_vllm: bool = False
    engine_capacity: int | None = None
    served_model: str | None = None
    key_env: str | None = None
    launch: int = 0
    command: str | None = None
    launch_args: tuple[str, ...] = ()

    @property
    def capacity(self) -> dict[str, Any]:
        """`capacity` as a keyword argument, if it is set."""
        return {} if self.engine_capacity is None else {"capacity": self.engine_capacity}


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
        stop_token_ids: ids that end an action; None: those of tokenizer and model.
        sharded: whether the model's parameters are sharded over processes.
        vllm_generation: TRL's `VLLMGeneration`, for a trainer with `use_vllm`.
        gather: joins lists of all ranks.
        dtype: the torch dtype to sample in; None: that of the model's weights.
        rank: the number of this process among them.
        learns: whether these processes train, each on a GPU of its own.
        served: brings the model into the shape in which vLLM servers can be started with it; it may
            write into the given directory.
        directory: returns a directory for the logs of such servers.
        note: is told what is being waited for.
    """

    model: Callable[[], Any] = _absent
    tokenizer: Callable[[], Any] = _absent
    vocab_size: Callable[[], int | None] = lambda: None
    stop_token_ids: Sequence[int] | None = None
    sharded: bool = False
    vllm_generation: Any = None
    gather: Gather = list
    dtype: Any = None
    rank: int = 0
    learns: bool = False
    served: Callable[[Path], ServedModel] = lambda directory: _absent()
    directory: Callable[[], Path] = new_directory
    note: Callable[[str], None] = logger.info

    def whole_model(self, engine: str) -> Any:
        """The model, for the class `engine` that samples from it in each process. Raises ValueError
        for a model that is sharded over processes."""
        if self.sharded:
            raise ValueError(
                f"{engine} needs the whole model in each process, but FSDP or DeepSpeed ZeRO-3 "
                "spread it: with FSDP2 (fsdp_version: 2) name vLLM servers in engine_urls, with "
                "FSDP1 or ZeRO-3 use TRL's own vLLM (use_vllm), or train with DDP or ZeRO-2 "
                "(docs/distributed.md)"
            )
        return self.model()
