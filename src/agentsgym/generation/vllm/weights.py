"""The weights on vLLM servers, and how they are replaced: from disk, without NCCL.

An adapter has a name of its own in each version, so it needs no pause. All weights of a server are
replaced while it is paused, and it is told their tag, by which other processes know them; that
needs vLLM 0.31 in development mode.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from agentsgym.generation.http import HttpError, JsonClient, Refused
from agentsgym.generation.vllm.protocol import served_models

LOAD_SECONDS = 600.0
_TAG_SECONDS = 60.0
_TAG = "agentsgym:"


class WeightSyncError(RuntimeError):
    """A server cannot load new weights; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of a `version`: the original ones of the server ("base"), a LoRA "adapter", or a
    full "checkpoint". The latter two are in the directory `path` as the server sees it. `model` is
    the name under which they are served, `tag` the one by which a server tells that it has them."""

    version: int
    kind: Literal["base", "adapter", "checkpoint"]
    model: str
    path: str = ""

    @property
    def tag(self) -> str:
        return f"{_TAG}{self.version}:{self.path}"


def weights_of(tag: str, like: Weights) -> Weights | None:
    """The weights that a tag names, of the run that `like` is of; None for others."""
    version, _, path = tag.removeprefix(_TAG).partition(":")
    known = (
        tag.startswith(_TAG) and version.isdigit() and Path(path).parent == Path(like.path).parent
    )
    return replace(like, version=int(version), path=path) if known else None


@asynccontextmanager
async def paused(client: JsonClient, url: str) -> AsyncIterator[None]:
    """The server has answered its open requests and holds back all others. It counts as paused
    before that, so it is resumed in any case, as when the learner ends meanwhile."""
    try:
        await _post(client, url, "pause?mode=wait")
        yield
    except BaseException:
        with suppress(HttpError, WeightSyncError):
            await resume_server(client, url)
        raise
    await resume_server(client, url)


async def resume_server(client: JsonClient, url: str) -> None:
    """End a server's pause. Raises as `load_checkpoint`."""
    await _post(client, url, "resume")


async def load_checkpoint(client: JsonClient, url: str, weights: Weights) -> None:
    """Replace all weights of a paused server. Raises WeightSyncError if it does not support that,
    Unreachable if it does not answer."""
    try:
        where = {"weights_path": weights.path}
        await _post(client, url, "collective_rpc", method="reload_weights", kwargs=where)
        await _post(client, url, "reset_prefix_cache")
        await _post(client, url, "update_weight_version", new_version=weights.tag)
    except (HttpError, WeightSyncError):
        # The server may have parts of two versions: its answers count for neither.
        with suppress(HttpError, WeightSyncError):
            broken = f"{_TAG} failed to load"
            await _post(client, url, "update_weight_version", new_version=broken)
        raise


async def weight_tag(client: JsonClient, url: str) -> str:
    """The tag of the full weights that a server has. Raises WeightSyncError or Unreachable."""
    try:
        answer = await client.get(f"{url}/weight_info", _TAG_SECONDS)
    except Refused as error:
        raise WeightSyncError(_no_checkpoints(url, error)) from None
    return str(answer.get("weight_version")) if isinstance(answer, dict) else ""


async def _post(client: JsonClient, url: str, path: str, **body: Any) -> None:
    try:
        await client.post(f"{url}/{path}", body, LOAD_SECONDS)
    except HttpError as error:
        if error.status is None:
            raise
        raise WeightSyncError(_no_checkpoints(url, error)) from None


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
            raise WeightSyncError(_no_adapters(url, error)) from None


def _no_adapters(url: str, error: HttpError) -> str:
    return (
        f"{url} did not load the LoRA adapter ({error.reason}): that needs vLLM with "
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and a high enough --max-lora-rank, on a "
        "machine that can read the directory"
    )


def _no_checkpoints(url: str, error: HttpError) -> str:
    return (
        f"{url} did not replace its full weights ({error.reason}): that needs vLLM 0.31 with "
        "VLLM_SERVER_DEV_MODE=1; see the server's log, or train a LoRA adapter (peft_config)"
    )
