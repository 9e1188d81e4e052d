"""What the engine samples is what a plain full forward of the model says."""

from functools import partial
from typing import Any

import pytest
from generation_helpers import assert_exact, build_model, play

from agentsgym.generation.embedded.engine import EmbeddedEngine

KINDS = ["llama", "qwen2", "qwen3", "gemma"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_ragged_turns(models: Any, tokenizer: Any, kind: str, temperature: float) -> None:
    model = models(kind)
    engine = EmbeddedEngine(model, tokenizer)
    check = partial(assert_exact, model, temperature=temperature)
    play(engine, sessions=9, turns=5, temperature=temperature, rewrite_at=3, check=check)
    assert engine.stats.extra["reused_tokens"] > 0


@pytest.mark.parametrize(
    "options",
    [
        {"max_cache_tokens": 200},
        {"max_cache_tokens": 700},
        {"capacity": 1},
        {"capacity": 3},
        {"capacity": 5, "max_prefill_tokens": 3},
    ],
    ids=str,
)
def test_little_memory_few_places_small_chunks(model: Any, tokenizer: Any, options: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, **options)
    check = partial(assert_exact, model, temperature=0.0)
    play(engine, sessions=9, turns=5, temperature=0.0, rewrite_at=3, check=check)


def test_bfloat16(tokenizer: Any) -> None:
    model = build_model("llama", initializer_range=0.1).bfloat16()
    engine = EmbeddedEngine(model, tokenizer)
    play(engine, 5, 3, check=partial(assert_exact, model, tolerance=0.05))


def test_companions_do_not_matter(model: Any, tokenizer: Any) -> None:
    together = play(EmbeddedEngine(model, tokenizer), sessions=8, turns=4)
    squeezed = play(EmbeddedEngine(model, tokenizer, capacity=2), sessions=8, turns=4)
    bounded = play(EmbeddedEngine(model, tokenizer, max_cache_tokens=150), sessions=8, turns=4)
    fewer = play(EmbeddedEngine(model, tokenizer), sessions=3, turns=4)
    assert together == squeezed == bounded
    assert fewer == {name: together[name] for name in fewer}
