"""The plain engine: what it samples is what a full forward says, for models of every kind."""

from functools import partial
from typing import Any

import pytest
from generation_helpers import assert_exact, play

from agentsgym.generation import EmbeddedEngine, PlainEngine


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_ragged_turns(model: Any, tokenizer: Any, temperature: float) -> None:
    engine = PlainEngine(model, tokenizer)
    assert engine.reading.cached and engine.reading.ragged
    check = partial(assert_exact, model, temperature=temperature)
    play(engine, sessions=6, turns=3, temperature=temperature, rewrite_at=2, check=check)


def test_samples_what_the_embedded_engine_samples(model: Any, tokenizer: Any) -> None:
    ours = play(PlainEngine(model, tokenizer), sessions=6, turns=3)
    assert ours == play(EmbeddedEngine(model, tokenizer), sessions=6, turns=3)
    assert ours == play(PlainEngine(model, tokenizer, capacity=2), sessions=6, turns=3)
    assert ours == play(PlainEngine(model, tokenizer, max_batch_tokens=1), sessions=6, turns=3)
