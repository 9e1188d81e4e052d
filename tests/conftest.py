"""Real tokenizers and models, built in process: nothing is downloaded."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["COLUMNS"] = "200"  # the console takes its width when it is first imported

import pytest
from transformers import PreTrainedTokenizerFast

from helpers import CHATML, DROPS_THOUGHT, build_tokenizer, random_llama


@pytest.fixture(scope="session")
def plain_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(None)


LONGEST = (
    "test_two_processes.py",
    "test_several_processes.py",
    "test_readme.py",
    "test_examples.py",
    "test_disk.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: a process that begins one at the end works alone."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def chat_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(CHATML)


@pytest.fixture(scope="session")
def thinking_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(DROPS_THOUGHT)


@pytest.fixture(scope="session", autouse=True)
def one_thread_per_test_process() -> None:
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


@pytest.fixture
def tiny_llama(chat_tokenizer):
    """A random Llama of 2 layers over the chat tokenizer's vocabulary."""
    return random_llama(chat_tokenizer).eval()
