"""The tiny models and tokenizer of these tests as fixtures."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from generation_helpers import build_model, build_tokenizer  # noqa: E402  # needs torch


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
