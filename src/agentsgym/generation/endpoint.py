"""Finds out what answers at an address: a vLLM server, or another chat endpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.generation.http import JsonClient, Refused, Unreachable, read_key
from agentsgym.generation.loop_thread import LoopThread
from agentsgym.generation.vllm.protocol import served_models

_SECONDS = 30.0
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json")


class NothingThere(RuntimeError):
    """Nothing at an address answers."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What answers at an address.

    Args:
        url: its base, without `/v1`.
        names: the models that it lists; empty if it lists none.
        is_vllm: whether it takes and gives token ids, as vLLM does.
        folder: the directory on this machine that the first model was loaded from, with its
            tokenizer; None if there is none.
    """

    url: str
    names: tuple[str, ...] = ()
    is_vllm: bool = False
    folder: str | None = None


def is_url(text: str) -> bool:
    """Whether a text is the address of an endpoint."""
    return text.startswith(("http://", "https://"))


def ask(url: str, key_env: str | None) -> Endpoint:
    """Ask once what is at `url`. Raises NothingThere if nothing answers, and MissingKey."""
    key = read_key(key_env)
    base = url.rstrip("/").removesuffix("/chat/completions").removesuffix("/v1")
    client = JsonClient({"Authorization": f"Bearer {key}"} if key else {})
    loop = LoopThread("agentsgym-endpoint")
    loop.at_end(client.close)
    try:
        models = loop.run(served_models(client, base, _SECONDS))
    except Refused:  # it answers, but lists no models
        return Endpoint(base)
    except Unreachable as error:
        if error.status is not None:
            return Endpoint(base)
        raise NothingThere(f"nothing answers at {error.url}: {error.reason}") from None
    finally:
        loop.close()
    # vLLM lists its base models first, then adapters, whose parent is the base.
    first: dict[str, Any] = next(iter(models.values()), {})
    is_vllm = first.get("owned_by") == "vllm" or "max_model_len" in first
    return Endpoint(base, tuple(models), is_vllm, _folder(first) if is_vllm else None)


def _folder(model: dict[str, Any]) -> str | None:
    """The local directory that a model's entry names, if it has a tokenizer."""
    for name in (model.get("root"), model.get("id")):
        if isinstance(name, str) and any((Path(name) / file).is_file() for file in _TOKENIZERS):
            return name
    return None
