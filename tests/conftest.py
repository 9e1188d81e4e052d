"""Real tokenizers and models, built in process: nothing is downloaded."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from helpers import CHATML, DROPS_THOUGHT

_TEXTS = [
    "Is it an animal? Can it fly? Yes. No. I don't know. [apple] [chair] [clock] [banana]",
    "The number is higher. The number is lower. 0 1 2 3 4 5 6 7 8 9 guess the number",
    "Let's play Twenty Questions. I am thinking of something. You have 20 turns left.",
]


def build_tokenizer(chat_template: str | None) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of 400 tokens, trained on a few sentences."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        _TEXTS,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<pad>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=chat_template,
    )


@pytest.fixture(scope="session")
def plain_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(None)


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
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(chat_tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        pad_token_id=chat_tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=chat_tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config).eval()
