"""The weights on vLLM servers, and how they are replaced: from disk, without NCCL."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from agentsgym.generation.http import HttpError, JsonClient, Refused

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


def tagged(tag: str, like: Weights) -> Weights | None:
    """The weights that a tag names, of the run that `like` is of; None for others."""
    version, _, path = tag.removeprefix(_TAG).partition(":")
    known = (
        tag.startswith(_TAG) and version.isdigit() and Path(path).parent == Path(like.path).parent
    )
    return replace(like, version=int(version), path=path) if known else None


async def load_weights(
    client: JsonClient, url: str, weights: Weights, *, shared: bool, sampling: bool
) -> None:
    """Make the server at `url` serve `weights`.

    `shared` says that other processes ask the server too, `sampling` that they may do so now: then
    the server answers what is open and holds back the rest while it loads full weights.

    Raises WeightSyncError if the server does not support it, Unreachable if it does not answer.
    """
    if weights.kind == "adapter":
        await _load_adapter(client, url, weights)
    elif weights.kind == "checkpoint":
        if shared and sampling:
            await _pause(client, url)
        try:
            await _load_checkpoint(client, url, weights)
            if shared:
                await _tell_tag(client, url, weights, needed=sampling)
        except (HttpError, WeightSyncError):
            if shared:
                await _tell_unknown(client, url)
            raise
        finally:
            if shared and sampling:
                await _post(client, url, "resume")


async def _pause(client: JsonClient, url: str) -> None:
    """A server counts as paused before its open requests are answered, so one that this does not
    wait for to the end, as when the learner ends meanwhile, is resumed."""
    try:
        await _post(client, url, "pause?mode=wait")
    except BaseException:
        with suppress(HttpError):
            await client.post(f"{url}/resume", {}, LOAD_SECONDS)
        raise


async def weight_tag(client: JsonClient, url: str) -> str:
    """The tag of the full weights that a server has. Raises WeightSyncError or Unreachable."""
    try:
        answer = await client.get(f"{url}/weight_info", _TAG_SECONDS)
    except Refused as error:
        raise WeightSyncError(_not_shared(url, error)) from None
    return str(answer.get("weight_version")) if isinstance(answer, dict) else ""


async def _tell_tag(client: JsonClient, url: str, weights: Weights, *, needed: bool) -> None:
    try:
        await _post(client, url, "update_weight_version", new_version=weights.tag)
    except WeightSyncError:
        if needed:
            raise


async def _tell_unknown(client: JsonClient, url: str) -> None:
    """The server may have parts of two versions: no process takes its answers for one of them."""
    with suppress(HttpError):
        body = {"new_version": "agentsgym: failed to load"}
        await client.post(f"{url}/update_weight_version", body, _TAG_SECONDS)


async def _post(client: JsonClient, url: str, path: str, **body: Any) -> None:
    try:
        await client.post(f"{url}/{path}", body, LOAD_SECONDS)
    except Refused as error:
        raise WeightSyncError(_not_shared(url, error)) from None


async def _load_adapter(client: JsonClient, url: str, weights: Weights) -> None:
    if weights.model in await served_models(client, url):
        return
    body = {"lora_name": weights.model, "lora_path": weights.path}
    try:
        await client.post(f"{url}/v1/load_lora_adapter", body, LOAD_SECONDS)
    except Refused as error:
        # Another process of the run may have loaded it in the meantime.
        if weights.model not in await served_models(client, url):
            raise WeightSyncError(_no_adapters(url, error)) from None


async def unload_adapter(client: JsonClient, url: str, weights: Weights) -> None:
    """Let the server unload an adapter. A server that does not know it, or is gone, is ignored."""
    try:
        await client.post(
            f"{url}/v1/unload_lora_adapter", {"lora_name": weights.model}, LOAD_SECONDS
        )
    except HttpError:
        return


async def _load_checkpoint(client: JsonClient, url: str, weights: Weights) -> None:
    body = {"method": "reload_weights", "kwargs": {"weights_path": weights.path}}
    try:
        await client.post(f"{url}/collective_rpc", body, LOAD_SECONDS)
        await client.post(f"{url}/reset_prefix_cache", {}, LOAD_SECONDS)
    except HttpError as error:
        if error.status is None:
            raise
        raise WeightSyncError(_no_checkpoints(url, error)) from None


async def served_models(client: JsonClient, url: str, timeout: float = 30.0) -> dict[str, Any]:
    """The models that `/v1/models` lists, by name. Raises Unreachable or Refused."""
    answer = await client.get(f"{url}/v1/models", timeout)
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list) or not all(_is_model(entry) for entry in entries):
        raise Refused(url, f"/v1/models is no list of models: {str(answer)[:200]}")
    return {entry["id"]: entry for entry in entries}


def _is_model(entry: Any) -> bool:
    """Whether an entry of /v1/models has a name, and a valid length if it has one."""
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
        return False
    length = entry.get("max_model_len")
    return length is None or (type(length) is int and length > 0)


def _no_adapters(url: str, error: HttpError) -> str:
    flags = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora"
    if error.status == 404 and error.reason.endswith("Not Found"):
        return f"{url} does not load LoRA adapters at run time: start vLLM with {flags}"
    return (
        f"{url} did not load the LoRA adapter ({error.reason}); was vLLM started with {flags} and "
        "a high enough --max-lora-rank, and can it read the directory?"
    )


def _not_shared(url: str, error: HttpError) -> str:
    return (
        f"{url} does not replace full weights while several processes sample from it "
        f"({error.reason}): that needs vLLM 0.31 with VLLM_SERVER_DEV_MODE=1; or train a LoRA "
        "adapter (peft_config), or with max_staleness=0"
    )


def _no_checkpoints(url: str, error: HttpError) -> str:
    if error.status in (404, 405):
        return (
            f"{url} does not reload full weights from disk: start vLLM with "
            "VLLM_SERVER_DEV_MODE=1, or train a LoRA adapter (peft_config)"
        )
    return (
        f"{url} failed to reload full weights from disk ({error.reason}); see the server's log, "
        "or train a LoRA adapter (peft_config)"
    )
