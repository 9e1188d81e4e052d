"""How requests come, end, fail and leave; what the engine counts; what it leaves untouched."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from generation_helpers import (
    VOCABULARY,
    assert_exact,
    build_model,
    drain,
    plain_logprobs,
    play,
)

from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.sampling import uniforms
from agentsgym.types import (
    GenerationRequest,
    SamplingParams,
    WeightUpdate,
)


def request(name: str, ids: list[int], seed: int = 0, **params: Any) -> GenerationRequest:
    return GenerationRequest(name, ids, SamplingParams(**params), seed=seed)


@pytest.fixture
def engine(model: Any, tokenizer: Any) -> EmbeddedEngine:
    return EmbeddedEngine(model, tokenizer)


def test_noise_is_seed_and_token_index(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[])
    context = [5, 6, 7]
    later = GenerationRequest("s", context, SamplingParams(max_tokens=6), 11, sampled_before=4)
    engine.submit([later])
    result = drain(engine)["s"]
    noise = torch.from_numpy(uniforms([11] * 6, [4, 5, 6, 7, 8, 9]))
    probabilities = plain_logprobs(model, context, result.token_ids).double().exp()
    expected = (probabilities.cumsum(-1) > noise[:, None]).int().argmax(-1)
    assert expected.tolist() == list(result.token_ids)


def test_end_of_turn_is_kept_and_stops(model: Any, tokenizer: Any) -> None:
    greedy = request("s", [9, 9, 9], max_tokens=12, temperature=0)
    free = EmbeddedEngine(model, tokenizer, stop_token_ids=[])
    free.submit([greedy])
    long = drain(free)["s"]
    assert (long.finish_reason, len(long.token_ids)) == ("length", 12)
    stop = long.token_ids[5]
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[stop])
    engine.submit([greedy])
    short = drain(engine)["s"]
    cut = long.token_ids.index(stop) + 1
    assert short.finish_reason == "stop"
    assert short.token_ids == long.token_ids[:cut]
    assert len(short.logprobs) == cut


def test_stop_string_spans_tokens(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[])
    engine.submit([request("long", [9, 9, 9], 3, max_tokens=40)])
    text = drain(engine)["long"].text
    stop = text[7:10]
    engine.submit(
        [
            request("stopped", [9, 9, 9], 3, max_tokens=40, stop=("\u2603", stop)),
            request("other", [9, 9, 9], 3, max_tokens=40, stop=("\u2603",)),
        ]
    )
    results = drain(engine)
    assert results["stopped"].finish_reason == "stop"
    assert results["stopped"].text == text[: text.index(stop) + 3]
    assert results["other"].finish_reason == "length"
    assert results["other"].text == text


def test_impossible_requests_fail_alone(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer)
    engine.submit(
        [
            request("empty", []),
            request("high", [3, VOCABULARY]),
            request("negative", [3, -1]),
            request("long", [3] * 512),
            request("fine", [3, 4], max_tokens=3),
        ]
    )
    results = drain(engine)
    assert results.pop("fine").error is None
    assert all(result.finish_reason == "error" for result in results.values())
    expected = {
        "empty": "empty",
        "high": f"token id {VOCABULARY}",
        "negative": "token id -1",
        "long": "512 positions",
    }
    for name, words in expected.items():
        assert name in str(results[name].error)
        assert words in str(results[name].error)


def test_two_open_requests_of_a_session_are_refused(engine: EmbeddedEngine) -> None:
    engine.submit([request("s", [3])])
    with pytest.raises(ValueError, match="'s' already has a request open"):
        engine.submit([request("t", [3]), request("s", [3])])
    assert set(drain(engine)) == {"s"}
    with pytest.raises(ValueError, match="'u'"):
        engine.submit([request("u", [3]), request("u", [3])])


def test_release_forgets(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, capacity=1)
    engine.submit([request(name, [3, 4], max_tokens=4) for name in ("a", "b", "c")])
    done = engine.poll()[0].session_id
    engine.release(["b"])
    assert set(drain(engine)) == {"c"}
    engine.release([done, "c"])
    assert engine._caches.sessions == 0
    assert not engine._caches.memory.planes
    engine.submit([request("a", [3, 4], max_tokens=4)])
    assert drain(engine)["a"].error is None
    assert engine.stats.extra["reused_tokens"] == 0


def test_a_model_serves_one_engine_at_a_time(model: Any, tokenizer: Any) -> None:
    first, second = EmbeddedEngine(model, tokenizer), EmbeddedEngine(model, tokenizer)
    first.submit([request("a", [3, 4], max_tokens=4)])
    second.submit([request("b", [5, 6], max_tokens=4)])

    def interfere(*_: Any) -> None:
        with pytest.raises(RuntimeError, match="another EmbeddedEngine"):
            second.poll()

    handle = model.register_forward_pre_hook(interfere)
    answer = drain(first)["a"]
    handle.remove()
    assert_exact(model, [3, 4], answer)
    assert_exact(model, [5, 6], drain(second)["b"])


def test_counts(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[])
    engine.submit([request("s", [3, 4, 5], max_tokens=4)])
    first = drain(engine)["s"]
    engine.submit([request("s", [3, 4, 5, *first.token_ids, 6, 7], max_tokens=2)])
    drain(engine)
    stats = engine.stats
    assert stats.forward_passes == 4 + 2
    assert stats.sampled_tokens == 4 + 2
    # The fourth token was sampled but not yet read when the first turn ended.
    assert stats.read_tokens == 3 + 1 + 2
    assert stats.extra["reused_tokens"] == 3 + 3


@pytest.mark.parametrize("budget", [5, 2048])
def test_a_prompt_is_read_once(model: Any, tokenizer: Any, budget: int) -> None:
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[])
    engine.max_prefill_tokens = budget
    prompt = [random.Random(1).randrange(VOCABULARY) for _ in range(30)]
    params = SamplingParams(max_tokens=5)
    engine.submit([GenerationRequest(f"s{i}", prompt, params, seed=i) for i in range(8)])
    results = drain(engine)
    assert engine.stats.read_tokens == 30 + 7
    assert engine.stats.extra["shared_prefix_tokens"] == 7 * 29
    assert len({result.token_ids for result in results.values()}) == 8
    for result in results.values():
        assert_exact(model, prompt, result)


def test_the_same_answer_to_the_same_action_is_read_once(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[])
    prompt, answer = [3] * 40, list(range(4, 24))
    params = SamplingParams(max_tokens=3, temperature=0)
    names = [f"s{i}" for i in range(4)]
    engine.submit([GenerationRequest(name, prompt, params) for name in names])
    actions = {name: result.token_ids for name, result in drain(engine).items()}
    read, shared = engine.stats.read_tokens, engine.stats.extra["shared_prefix_tokens"]
    contexts = {name: [*prompt, *actions[name], *answer] for name in names}
    engine.submit([GenerationRequest(name, ids, params) for name, ids in contexts.items()])
    for name, result in drain(engine).items():
        assert_exact(model, contexts[name], result)
    # The last sampled token was not yet read; each row reads the last token to sample.
    assert engine.stats.read_tokens - read == 1 + 20 + 3
    assert engine.stats.extra["shared_prefix_tokens"] - shared == 3 * 20


def test_new_weights_after_reset(tokenizer: Any) -> None:
    model = build_model()
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[])
    engine.submit([request("s", [3, 4, 5], max_tokens=4)])
    first = drain(engine)["s"]
    model.load_state_dict({k: v * 0.9 for k, v in model.state_dict().items()})
    engine.update_weights(WeightUpdate(model, 3, Path()))
    context = [3, 4, 5, *first.token_ids]
    engine.submit([request("s", context, max_tokens=4)])
    second = drain(engine)["s"]
    assert_exact(model, context, second)
    assert (first.policy_version, second.policy_version) == (0, 3)


def test_weights_of_another_model_are_refused(tokenizer: Any) -> None:
    model = build_model()
    engine = EmbeddedEngine(model, tokenizer)
    engine.update_weights(WeightUpdate(torch.nn.Sequential(model), 1, Path()))  # wrapped only
    with pytest.raises(ValueError, match="another model than the one that is trained"):
        engine.update_weights(WeightUpdate(build_model(), 2, Path()))
    assert engine.policy_version == 1


def test_training_goes_on_as_before(tokenizer: Any) -> None:
    model = build_model(attention_dropout=0.5).train()
    model.model.layers[1].eval()
    flags = [module.training for module in model.modules()]
    own_attention = model.config._attn_implementation
    engine = EmbeddedEngine(model, tokenizer)
    play(engine, 3, 2, check=lambda context, result: None)
    assert [module.training for module in model.modules()] == flags
    assert model.config._attn_implementation == own_attention
    model(input_ids=torch.tensor([[3, 4, 5]]), labels=torch.tensor([[3, 4, 5]])).loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_broken_weights_give_errors_and_heal(tokenizer: Any) -> None:
    model = build_model()
    engine = EmbeddedEngine(model, tokenizer)
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    model.lm_head.weight.data.fill_(float("nan"))
    model.model.embed_tokens.weight.data.fill_(float("nan"))
    engine.submit([request("a", [3, 4], max_tokens=6), request("b", [3, 4, 5], max_tokens=6)])
    for name, result in drain(engine).items():
        assert result.finish_reason == "error"
        assert result.error == f"session {name!r}: the model's logits are not finite"
    model.load_state_dict(weights)
    engine.submit([request("c", [3, 4], max_tokens=6)])
    assert_exact(model, [3, 4], drain(engine)["c"])


def test_from_pretrained(tmp_path: Any, tokenizer: Any) -> None:
    model = build_model()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    engine = EmbeddedEngine.from_pretrained(str(tmp_path), capacity=2)
    engine.submit([request("s", [3, 4], max_tokens=3)])
    assert_exact(model, [3, 4], drain(engine)["s"])
    assert engine.capacity == 2
