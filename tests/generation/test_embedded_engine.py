"""How requests come, end, fail and leave; what the engine counts; what it leaves untouched."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from generation_helpers import END, VOCABULARY, assert_exact, build_model, plain_logprobs, play

from agentsgym.generation.embedded.attention import slot_attention_on
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.embedded.forward import evaluating
from agentsgym.generation.sampling import uniforms
from agentsgym.types import (
    Engine,
    GenerationRequest,
    GenerationResult,
    SamplingParams,
    WeightUpdate,
)


def request(name: str, ids: list[int], seed: int = 0, **params: Any) -> GenerationRequest:
    return GenerationRequest(name, ids, SamplingParams(**params), seed=seed)


def drain(engine: EmbeddedEngine) -> dict[str, GenerationResult]:
    results: dict[str, GenerationResult] = {}
    while found := engine.poll():
        results |= {result.session_id: result for result in found}
    return results


def draw(model: Any, context: list[int], count: int, **params: Any) -> list[int]:
    """The first tokens that `count` sessions with different seeds sample after `context`."""
    engine = EmbeddedEngine(model, tokenizer=_Silent(), stop_token_ids=[])
    engine.submit([request(f"s{i}", context, i, max_tokens=1, **params) for i in range(count)])
    return [result.token_ids[0] for result in drain(engine).values()]


class _Silent:
    eos_token_id = None

    def decode(self, ids: Any, **options: Any) -> str:
        return ""


@pytest.fixture
def engine(model: Any, tokenizer: Any) -> EmbeddedEngine:
    return EmbeddedEngine(model, tokenizer)


def test_is_an_engine_and_idles_without_requests(engine: EmbeddedEngine) -> None:
    as_protocol: Engine = engine
    assert as_protocol.poll() == []
    assert as_protocol.stats.occupancy == 1.0
    as_protocol.cancel(["nobody"])
    as_protocol.release(["nobody"])


def test_importing_the_room_does_not_import_torch() -> None:
    code = (
        "import sys, agentsgym.generation; assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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


@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.5}, {"temperature": 1.5, "top_k": 3}, {"top_p": 0.6}],
    ids=str,
)
def test_first_tokens_follow_the_truncated_distribution(model: Any, params: Any) -> None:
    context, count = [9, 8, 7, 6], 4000
    found = torch.bincount(
        torch.tensor(draw(model, context, count, **params)), minlength=VOCABULARY
    )
    expected = plain_logprobs(model, context, [0], params.get("temperature", 1.0))[0].exp()
    ordered, order = expected.sort(descending=True)
    outside = (ordered.cumsum(0) - ordered) >= params.get("top_p", 1.0)
    outside[params.get("top_k", VOCABULARY) :] = True
    expected[order[outside]] = 0
    expected /= expected.sum()
    assert found[expected == 0].sum() == 0
    error = (found / count - expected).abs()
    assert (error < 5 * (expected * (1 - expected) / count).sqrt() + 4 / count).all()


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


def test_end_of_turn_ids_come_from_tokenizer_and_generation_config(tokenizer: Any) -> None:
    model = build_model()
    model.generation_config.eos_token_id = [17, 23]
    engine = EmbeddedEngine(model, tokenizer)
    assert engine._is_stop.nonzero()[0].tolist() == [END, 17, 23]


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
    engine = EmbeddedEngine(model, tokenizer, max_cache_tokens=256)
    engine.submit(
        [
            request("empty", []),
            request("high", [3, VOCABULARY]),
            request("negative", [3, -1]),
            request("long", [3] * 512),
            request("big", [3] * 200, max_tokens=100),
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
        "big": "max_cache_tokens=256",
    }
    for name, words in expected.items():
        assert name in str(results[name].error)
        assert words in str(results[name].error)


def test_positions_end_an_action(engine: EmbeddedEngine, model: Any) -> None:
    engine.submit([request("s", [3] * 508, max_tokens=64, temperature=0)])
    result = drain(engine)["s"]
    assert result.finish_reason in ("length", "stop")
    assert len(result.token_ids) <= 4
    assert_exact(model, [3] * 508, result, temperature=0)


def test_two_open_requests_of_a_session_are_refused(engine: EmbeddedEngine) -> None:
    engine.submit([request("s", [3])])
    with pytest.raises(ValueError, match="'s' already has a request open"):
        engine.submit([request("t", [3]), request("s", [3])])
    assert set(drain(engine)) == {"s"}
    with pytest.raises(ValueError, match="'u'"):
        engine.submit([request("u", [3]), request("u", [3])])


def test_cancel_returns_what_was_sampled(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, capacity=2, stop_token_ids=[])
    engine.submit([request("short", [3], max_tokens=5), request("long", [4], max_tokens=100)])
    engine.submit([request("waiting", [5], max_tokens=9)])
    assert [result.session_id for result in engine.poll()] == ["short"]
    engine.cancel(["long", "waiting", "short"])
    results = {result.session_id: result for result in engine.poll()}
    assert {name: result.finish_reason for name, result in results.items()} == {
        "long": "cancelled",
        "waiting": "cancelled",
    }
    assert len(results["long"].token_ids) == 5
    assert_exact(model, [4], results["long"])
    assert results["waiting"].token_ids == ()
    assert engine.poll() == []
    # The session may go on, with its cache.
    engine.submit([request("long", [4, *results["long"].token_ids, 6], max_tokens=2)])
    assert_exact(model, [4, *results["long"].token_ids, 6], drain(engine)["long"])
    assert engine.stats.extra["reused_tokens"] == 5


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


def test_occupancy_with_varied_lengths(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, capacity=64)
    play(engine, sessions=64, turns=4, longest=16)
    assert engine.stats.occupancy > 0.95


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
@pytest.mark.parametrize("group", [None, 7])
def test_a_group_reads_its_prompt_once(
    model: Any, tokenizer: Any, budget: int, group: int | None
) -> None:
    engine = EmbeddedEngine(model, tokenizer, max_prefill_tokens=budget, stop_token_ids=[])
    prompt = [random.Random(1).randrange(VOCABULARY) for _ in range(30)]
    params = SamplingParams(max_tokens=5)
    engine.submit(
        [GenerationRequest(f"s{i}", prompt, params, seed=i, group=group) for i in range(8)]
    )
    results = drain(engine)
    assert engine.stats.read_tokens == 30 + 7
    assert engine.stats.extra["shared_prefix_tokens"] == 7 * 29
    assert len({result.token_ids for result in results.values()}) == 8
    for result in results.values():
        assert_exact(model, prompt, result)


def test_a_group_shares_the_start_of_different_prompts(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer)
    contexts = {f"s{i}": [3] * 20 + [i] * (i + 1) for i in range(4)}
    params = SamplingParams(max_tokens=5)
    engine.submit([GenerationRequest(s, ids, params, group=1) for s, ids in contexts.items()])
    for name, result in drain(engine).items():
        assert_exact(model, contexts[name], result)
    assert engine.stats.extra["shared_prefix_tokens"] >= 2 * 20


def test_leader_leaves_before_it_has_read(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, max_prefill_tokens=4, capacity=3)
    prompt = list(range(2, 40))
    engine.submit([request(name, prompt, max_tokens=2) for name in ("a", "b", "c")])
    engine._admit()
    with evaluating(model), slot_attention_on(model.config):
        engine._forward()
    engine.release(["a"])
    for result in drain(engine).values():
        assert_exact(model, prompt, result)


def test_eviction_and_reset_are_counted(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, max_cache_tokens=64)
    play(engine, sessions=3, turns=2)
    assert engine.stats.extra["evictions"] > 0
    assert engine.stats.extra["reread_tokens"] > 0
    engine = EmbeddedEngine(model, tokenizer, capacity=1)
    play(engine, sessions=3, turns=2)
    assert engine.stats.extra["offloaded"] > 0
    assert engine.stats.extra["evictions"] == 0


def test_cache_memory_stays_bounded(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, max_cache_tokens=400)
    seen = []
    play(engine, 9, 5, check=lambda *_: seen.append(engine._caches.cache_tokens))
    assert max(seen) <= 400


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
    assert engine.stats.extra["reread_tokens"] == 6


def test_weights_of_another_model_are_refused(tokenizer: Any) -> None:
    model = build_model()
    engine = EmbeddedEngine(model, tokenizer)
    engine.update_weights(WeightUpdate(torch.nn.Sequential(model), 1, Path()))  # wrapped only
    with pytest.raises(ValueError, match="another model than the one that is trained"):
        engine.update_weights(WeightUpdate(build_model(), 2, Path()))
    assert engine.policy_version == 1


def test_reset_in_the_middle_of_an_action(model: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[])
    engine.submit([request("short", [3, 4], max_tokens=3), request("long", [5, 6], max_tokens=9)])
    engine.poll()
    engine.reset()
    assert_exact(model, [5, 6], drain(engine)["long"])


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


def test_dropout_is_off_while_sampling(tokenizer: Any) -> None:
    model = build_model(attention_dropout=0.5).train()
    engine = EmbeddedEngine(model, tokenizer)
    engine.submit([request("s", [3, 4, 5], max_tokens=6)])
    result = drain(engine)["s"]
    assert_exact(model.eval(), [3, 4, 5], result)


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


def test_bad_options_are_refused(model: Any, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        EmbeddedEngine(model, tokenizer, capacity=0)
    with pytest.raises(ValueError, match="max_prefill_tokens"):
        EmbeddedEngine(model, tokenizer, max_prefill_tokens=0)


def test_from_pretrained(tmp_path: Any, tokenizer: Any) -> None:
    model = build_model()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    engine = EmbeddedEngine.from_pretrained(str(tmp_path), capacity=2)
    engine.submit([request("s", [3, 4], max_tokens=3)])
    assert_exact(model, [3, 4], drain(engine)["s"])
    assert engine.capacity == 2
