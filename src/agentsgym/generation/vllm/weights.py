"""The weights on vLLM servers, and how they are replaced: from disk, without NCCL.

An adapter has a name of its own in each version, so it needs no pause. All weights of a server are
replaced while it is paused. A server's weight version is a `ServerMark` of ours, by which everyone
knows whose it is and what it has; that needs vLLM 0.31 in development mode. Without it nobody can
replace all weights of a server.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentsgym.generation.http import HttpError, JsonClient, Refused, printable
from agentsgym.generation.vllm.protocol import served_models

LOAD_SECONDS = 600.0
_MARK_SECONDS = 60.0
_OURS = "agentsgym:"
UNKNOWN = "unknown"
"""The path of weights that may be parts of two versions."""


class WeightSyncError(RuntimeError):
    """A server cannot load new weights; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of a `version`: the original ones of the server ("base"), a LoRA "adapter", or a
    full "checkpoint". The latter two are in the directory `path` as the server sees it. `model` is
    the name under which they are served, `holder` the training that loads them."""

    version: int
    kind: Literal["base", "adapter", "checkpoint"]
    model: str
    path: str = ""
    holder: str = ""

    @property
    def content(self) -> tuple[int, str] | None:
        """What a mark says of a server that has them; None: a mark says nothing of adapters."""
        return None if self.kind == "adapter" else (self.version, self.path)


class ServerMark(BaseModel):
    """What a server's weight version says.

    `holder` is the training that has the server, "" if none has, and `where` the directory that it
    writes to, with its host. A holder renews its mark with another `beat`. The server's own weights
    were replaced by those of a `version` in the directory `path`; "" if they were not.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    holder: str = Field(default="", max_length=100)
    where: str = Field(default="", max_length=10_000)
    beat: int = 0
    version: int = 0
    path: str = Field(default="", max_length=10_000)

    @classmethod
    def of(cls, text: str) -> "ServerMark":
        """The mark in a weight version; one of nobody for another's."""
        with suppress(ValidationError):
            return cls.model_validate_json(text.removeprefix(_OURS))
        return cls()

    @property
    def content(self) -> tuple[int, str]:
        """What it says of the weights."""
        return self.version, self.path

    def __str__(self) -> str:
        return f"the training in {printable(self.where)}"


async def read_mark(client: JsonClient, url: str) -> ServerMark | None:
    """A server's mark; None if it takes none. Raises Unreachable."""
    try:
        answer = await client.get(f"{url}/weight_info", _MARK_SECONDS)
    except Refused:
        return None
    return ServerMark.of(str(answer.get("weight_version")) if isinstance(answer, dict) else "")


async def write_mark(client: JsonClient, url: str, mark: ServerMark) -> None:
    """Set a server's mark. Raises as `load_checkpoint`."""
    version = _OURS + mark.model_dump_json()
    await command(client, url, "update_weight_version", new_version=version)


@asynccontextmanager
async def paused(client: JsonClient, url: str) -> AsyncIterator[None]:
    """The server has answered its open requests and holds back all others. It counts as paused
    before that, so it is resumed in any case, as when the learner ends meanwhile."""
    try:
        await command(client, url, "pause?mode=wait")
        yield
    except BaseException:
        with suppress(HttpError, WeightSyncError):
            await command(client, url, "resume")
        raise
    await command(client, url, "resume")


async def load_checkpoint(client: JsonClient, url: str, weights: Weights) -> None:
    """Replace all weights of a paused server. Raises WeightSyncError if it does not support that,
    Unreachable if it does not answer."""
    where = {"weights_path": weights.path}
    await command(client, url, "collective_rpc", method="reload_weights", kwargs=where)
    await command(client, url, "reset_prefix_cache")


async def command(client: JsonClient, url: str, path: str, **body: Any) -> None:
    """Send a command of development mode. Raises as `load_checkpoint`."""
    try:
        await client.post(f"{url}/{path}", body, LOAD_SECONDS)
    except HttpError as error:
        if error.status is None:
            raise
        raise WeightSyncError(
            f"{url} did not replace its full weights ({error.reason}): that needs vLLM 0.31 with "
            "VLLM_SERVER_DEV_MODE=1; see the server's log, or train a LoRA adapter (peft_config)"
        ) from None


async def load_adapter(client: JsonClient, url: str, weights: Weights) -> None:
    """Let a server load an adapter that it does not have. Raises as `load_checkpoint`."""
    if weights.model in await served_models(client, url):
        return
    body = {"lora_name": weights.model, "lora_path": weights.path}
    try:
        await client.post(f"{url}/v1/load_lora_adapter", body, LOAD_SECONDS)
    except Refused as error:
        # Another process of the run may have loaded it in the meantime.
        if weights.model not in await served_models(client, url):
            raise WeightSyncError(
                f"{url} did not load the LoRA adapter ({error.reason}): that needs vLLM with "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and a high enough "
                "--max-lora-rank, on a machine that can read the directory"
            ) from None
