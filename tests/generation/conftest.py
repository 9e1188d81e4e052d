"""Tiny real models and a tiny real tokenizer, built in this process."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY = 96


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def build_tokenizer() -> Any:
    """Byte-level tokens for ASCII, without merges; id 0 ends a turn and decodes to nothing."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ["</s>", "<pad>"] + [chr(c) for c in range(33, 33 + VOCABULARY - 3)] + ["Ġ"]
    core = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="</s>", pad_token="<pad>"
    )


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return build_tokenizer()


_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,
    "pad_token_id": 1,
    "bos_token_id": None,
    "eos_token_id": None,
}


def build_model(kind: str = "llama", **changes: Any) -> Any:
    """A random causal language model; wide weights, so that its distributions are not flat."""
    configs = {
        "llama": transformers.LlamaConfig,
        "qwen2": transformers.Qwen2Config,
        "qwen3": transformers.Qwen3Config,
        "gemma": transformers.GemmaConfig,
        "mistral": transformers.MistralConfig,
    }
    torch.manual_seed(0)
    config = configs[kind](**{**_SHAPE, **changes})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture(scope="session")
def models() -> Callable[[str], Any]:
    built: dict[str, Any] = {}

    def get(kind: str) -> Any:
        if kind not in built:
            built[kind] = build_model(kind)
        return built[kind]

    return get


@pytest.fixture(scope="session")
def model(models: Callable[[str], Any]) -> Any:
    return models("llama")
