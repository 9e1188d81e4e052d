"""Decides which models the embedded engine can run exactly; all others are refused by name."""

from collections.abc import Iterator
from typing import Any


class UnsupportedModelError(ValueError):
    """The model needs a feature that the embedded engine lacks; the message says which engines
    may have it."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}; vLLM may run it: set engine_urls or use_vllm (docs/engines.md)"
        )


def check_supported(model: Any) -> None:
    """Raise UnsupportedModelError with every reason why `model` cannot be run exactly."""
    reasons = list(_reasons(model))
    if reasons:
        raise UnsupportedModelError(
            f"the embedded engine does not support {type(model).__name__}: {'; '.join(reasons)}"
        )


def _reasons(model: Any) -> Iterator[str]:
    config = model.config.get_text_config()
    if getattr(model.config, "is_encoder_decoder", False):
        yield "it is an encoder-decoder"
    if not getattr(model, "_supports_attention_backend", False):
        yield "its attention cannot be replaced (no attention backend in transformers)"
    yield from _layer_reasons(config)
    yield from _rope_reasons(config)
    if getattr(config, "attn_logit_softcapping", None) is not None:
        yield "it soft-caps attention logits (attn_logit_softcapping)"
    if getattr(config, "alibi", False):
        yield "it uses ALiBi positions (alibi)"
    if getattr(config, "use_bidirectional_attention", False):
        yield "its attention is bidirectional (use_bidirectional_attention)"


def _layer_reasons(config: Any) -> Iterator[str]:
    layer_types = getattr(config, "layer_types", None)
    others = sorted(set(layer_types or ()) - {"full_attention"})
    if others:
        yield f"it has layers of type {', '.join(others)} (only full_attention is supported)"
    elif not layer_types and getattr(config, "sliding_window", None) is not None:
        yield f"it has a sliding window of {config.sliding_window} tokens (sliding_window)"


def _rope_reasons(config: Any) -> Iterator[str]:
    rope = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if kind in ("dynamic", "longrope"):
        yield f"its positions depend on the sequence's length (rope_type {kind})"
    if "mrope_section" in rope:
        yield "it has multimodal positions (mrope_section)"
