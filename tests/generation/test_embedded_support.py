"""Models that the engine cannot drive exactly are refused, with the reason's name."""

from typing import Any

import pytest
import torch
import transformers
from generation_helpers import assert_exact, build_model

from agentsgym.generation import EmbeddedEngine, UnsupportedModelError
from agentsgym.generation.embedded.attention import ATTENTION_NAME, packed_attention_on
from agentsgym.generation.plain import PlainEngine
from agentsgym.types import GenerationRequest, SamplingParams
from family_models import TINY_SHAPE


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            transformers.Lfm2Config(**TINY_SHAPE, layer_types=["conv", "full_attention"]),
            r"layers of type conv \(not full_attention or sliding_attention\)",
        ),
        (
            transformers.LlamaConfig(
                **TINY_SHAPE,
                rope_parameters={
                    "rope_type": "default",
                    "rope_theta": 10000.0,
                    "mrope_section": [1, 1, 2],
                },
            ),
            "mrope_section",
        ),
        (transformers.MambaConfig(vocab_size=96, hidden_size=32, num_hidden_layers=1), "attention"),
        (
            transformers.BloomConfig(vocab_size=96, hidden_size=32, n_layer=1, n_head=2),
            "attention cannot be replaced",
        ),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_what_cannot_be_sampled_exactly_is_refused(tokenizer: Any, config: Any, words: str) -> None:
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(UnsupportedModelError, match=f"{words}.*; vLLM may run it: .*engine.urls"):
        EmbeddedEngine(model, tokenizer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_models_are_compared_in_float32(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Packed passes that differ by less than 16 bits round are found in any dtype. The memory is
    told for the model's own, and no pass has a copy of all weights."""
    model = build_model().to(dtype)
    itemsize = next(model.parameters()).itemsize
    assert EmbeddedEngine(model, tokenizer)._caches._token_bytes == 2 * 2 * 2 * 8 * itemsize
    usual = model.model.norm.forward

    def other(states: Any) -> Any:
        packed = model.config._attn_implementation == ATTENTION_NAME
        return usual(states) * (1.003 if packed else 1.0)

    model.model.norm.forward = other
    with pytest.raises(UnsupportedModelError, match=r"relative difference 0\.00[12]\d*\)"):
        EmbeddedEngine(model, tokenizer)
    assert {weight.dtype for weight in model.parameters()} == {dtype}


def test_a_device_without_memory_is_no_model_without_support(tokenizer: Any) -> None:
    """The model works by itself, and the device has no memory left for the packed pass."""
    model = build_model()
    usual = model.model.forward

    def full(*args: Any, **options: Any) -> Any:
        if ATTENTION_NAME in model.config._attn_implementation:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return usual(*args, **options)

    model.model.forward = full
    with pytest.raises(torch.OutOfMemoryError):
        EmbeddedEngine(model, tokenizer)


def test_a_window_that_attention_ignores_is_found(tokenizer: Any) -> None:
    model = build_model("mistral", sliding_window=64)
    attention = model.model.layers[1].self_attn
    seeing = attention.forward

    def blind(*args: Any, **options: Any) -> Any:
        window, model.config.sliding_window = model.config.sliding_window, None
        try:
            return seeing(*args, **options)
        finally:
            model.config.sliding_window = window

    attention.forward = blind
    with pytest.raises(UnsupportedModelError, match="other logits with packed attention"):
        EmbeddedEngine(model, tokenizer)


def test_windows_of_several_sizes_are_refused_and_windows_are_restored(tokenizer: Any) -> None:
    model = build_model("mistral", sliding_window=64)
    EmbeddedEngine(model, tokenizer)
    assert model.config.sliding_window == 64
    model.model.layers[1].self_attn.sliding_window = 32
    with pytest.raises(UnsupportedModelError, match=r"windows of \[32\] tokens.* says 64"):
        EmbeddedEngine(model, tokenizer)


@pytest.mark.parametrize("engine", [EmbeddedEngine, PlainEngine])
def test_contexts_end_where_positions_change(tokenizer: Any, engine: Any) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    model = build_model(max_position_embeddings=64, rope_parameters=rope)
    engine = engine(model, tokenizer, stop_token_ids=[])
    engine.submit([GenerationRequest("a", [5] * 60, SamplingParams(max_tokens=9))])
    (result,) = engine.poll()
    assert (len(result.token_ids), result.finish_reason) == (4, "length")
    assert_exact(model, [5] * 60, result)


def test_parts_for_images_keep_their_attention():
    config = transformers.Gemma3Config()
    config._attn_implementation = {"text_config": "sdpa", "vision_config": "eager"}
    with packed_attention_on(config):
        assert config.text_config._attn_implementation == ATTENTION_NAME
        assert config.vision_config._attn_implementation == "eager"
    assert config.text_config._attn_implementation == "sdpa"
    assert config.vision_config._attn_implementation == "eager"
