"""The tiny models and tokenizer of these tests as fixtures."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from generation_helpers import QUICK, build_model, build_tokenizer  # noqa: E402  # needs torch

from agentsgym.generation import EmbeddedEngine  # noqa: E402  # needs torch
from agentsgym.generation.vllm import VLLMEngine  # noqa: E402  # needs torch
from completions_server import CompletionsServer  # noqa: E402  # needs torch
from helpers import CHATML, random_llama  # noqa: E402  # needs torch
from helpers import build_tokenizer as build_chat_tokenizer  # noqa: E402  # needs torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return build_tokenizer()


@pytest.fixture(scope="session")
def models() -> Callable[[str], Any]:
    """A random model of each kind, built once."""
    built: dict[str, Any] = {}

    def get(kind: str) -> Any:
        if kind not in built:
            built[kind] = build_model(kind)
        return built[kind]

    return get


@pytest.fixture(scope="session")
def model(models: Callable[[str], Any]) -> Any:
    return models("llama")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a chat template, as `serve-model` loads it."""
    tokenizer, path = build_chat_tokenizer(CHATML), tmp_path_factory.mktemp("model")
    random_llama(tokenizer).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def serve(model: Any, tokenizer: Any):
    """Returns a function that starts a server; options are CompletionsServer's."""
    started = []

    def start(**options: Any) -> CompletionsServer:
        started.append(
            CompletionsServer(EmbeddedEngine(copy.deepcopy(model), tokenizer), **options)
        )
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def connect(tokenizer: Any):
    """Returns a function that makes an engine over servers."""
    made = []

    def make(*servers: CompletionsServer, **options: Any) -> VLLMEngine:
        urls = [server.url for server in servers]
        made.append(VLLMEngine(urls, tokenizer, **({"retries": QUICK} | options)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def beside(tokenizer: Any):
    """Returns a function that makes an engine as another process of an engine's training does."""
    made = []

    def make(learner: VLLMEngine) -> VLLMEngine:
        made.append(learner.elsewhere(tokenizer))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
