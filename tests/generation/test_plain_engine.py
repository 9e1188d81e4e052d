"""The plain engine: what it samples is what a full forward says, for models of every kind."""

from functools import partial
from pathlib import Path
from typing import Any

from generation_helpers import assert_exact, build_model, play

from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.plain import PlainEngine
from agentsgym.types import GenerationRequest, SamplingParams, WeightUpdate


def test_samples_what_the_embedded_engine_samples(model: Any, tokenizer: Any) -> None:
    ours = play(PlainEngine(model, tokenizer), sessions=6, turns=3)
    assert ours == play(EmbeddedEngine(model, tokenizer), sessions=6, turns=3)
    assert ours == play(PlainEngine(model, tokenizer, capacity=2), sessions=6, turns=3)
    one_by_one = PlainEngine(model, tokenizer)
    one_by_one.max_batch_tokens = 1
    assert ours == play(one_by_one, sessions=6, turns=3)


def test_a_model_whose_cache_is_not_exact_reads_without_it(tokenizer: Any) -> None:
    model = build_model()
    forward = model.model.forward

    def forgetful(*args: Any, past_key_values: Any = None, **options: Any) -> Any:
        return forward(*args, **options | {"use_cache": False})

    model.model.forward = forgetful
    engine = PlainEngine(model, tokenizer)
    assert not engine.cached
    play(engine, sessions=2, turns=2, longest=4, check=partial(assert_exact, model))


def test_padding_that_enters_a_state_is_found(tokenizer: Any) -> None:
    model = build_model()
    forward = model.model.forward

    def unmasked(*args: Any, attention_mask: Any = None, **options: Any) -> Any:
        return forward(*args, **options)

    model.model.forward = unmasked
    assert not PlainEngine(model, tokenizer).cached


def test_release_and_new_weights_in_the_middle_of_a_batch(model: Any, tokenizer: Any) -> None:
    engine = PlainEngine(model, tokenizer, stop_token_ids=[])
    lengths = {"a": 3, "c": 9, "d": 9}
    engine.submit(
        [
            GenerationRequest(name, [7, 8, 9], SamplingParams(max_tokens=most), seed=ord(name))
            for name, most in lengths.items()
        ]
    )
    assert [result.session_id for result in engine.poll()] == ["a"]
    engine.release(["c"])
    engine.update_weights(WeightUpdate(model, 7, Path()))
    (last,) = engine.poll()
    assert (last.session_id, last.policy_version, len(last.token_ids)) == ("d", 7, 9)
    assert_exact(model, [7, 8, 9], last)
    assert engine.poll() == []
