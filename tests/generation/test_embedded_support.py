"""Models that the engine cannot drive exactly are refused, with the reason's name."""

from typing import Any

import pytest
import torch
import transformers
from generation_helpers import build_model

from agentsgym.generation import EmbeddedEngine, UnsupportedModelError

_TINY = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 1,
    "bos_token_id": None,
    "eos_token_id": None,
}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (transformers.MistralConfig(**_TINY, sliding_window=16), "sliding window of 16"),
        (transformers.Gemma2Config(**_TINY), "sliding_attention.*attn_logit_softcapping"),
        (
            transformers.Qwen2Config(**_TINY, use_sliding_window=True, max_window_layers=1),
            "sliding_attention",
        ),
        (
            transformers.LlamaConfig(
                **_TINY,
                rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
            ),
            "rope_type dynamic",
        ),
        (transformers.MambaConfig(vocab_size=96, hidden_size=32, num_hidden_layers=1), "attention"),
        (
            transformers.BloomConfig(vocab_size=96, hidden_size=32, n_layer=1, n_head=2),
            "attention cannot be replaced",
        ),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_refused(tokenizer: Any, config: Any, words: str) -> None:
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(UnsupportedModelError, match=f"{words}.*; vLLM may run it: .*engine_urls"):
        EmbeddedEngine(model, tokenizer)


def test_unusual_positions_are_found_by_trying(tokenizer: Any) -> None:
    model = build_model()
    rotary = model.model.rotary_emb
    usual = rotary.forward

    def shifted(states: Any, position_ids: Any) -> Any:
        return usual(states, position_ids - position_ids.min())

    rotary.forward = shifted
    with pytest.raises(
        UnsupportedModelError, match=r"other logits with slot attention.*engine_urls"
    ):
        EmbeddedEngine(model, tokenizer)


def test_attention_that_ignores_the_slots_is_found(tokenizer: Any) -> None:
    model = build_model()
    attention = model.model.layers[1].self_attn
    attention.config = transformers.LlamaConfig(**model.config.to_dict())
    attention.config._attn_implementation = "eager"
    with pytest.raises(UnsupportedModelError), torch.no_grad():
        EmbeddedEngine(model, tokenizer)


def test_moved_model_is_followed(model: Any, tokenizer: Any) -> None:
    assert EmbeddedEngine(model, tokenizer, device="cpu").device == torch.device("cpu")
