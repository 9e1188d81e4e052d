"""VLLMEngine against a local HTTP server that fails on demand; real vLLM: tests/vllm_servers."""

import time

import numpy as np
import pytest
from generation_helpers import QUICK, ask, assert_exact, requests

from agentsgym.generation import EngineUnavailable
from agentsgym.generation.vllm import VLLMEngine
from agentsgym.generation.vllm.protocol import (
    MalformedAnswer,
    read_completion,
)
from agentsgym.generation.vllm.weights import Weights, WeightSyncError
from agentsgym.tokens.grammars import Grammar
from agentsgym.types import GenerationRequest, GenerationResult, SamplingParams, WeightUpdate
from agentsgym.types.choices import Choices
from agentsgym.types.requests import is_context_overflow
from helpers import random_llama


def assert_same(results: dict[str, GenerationResult], clean: dict[str, GenerationResult]) -> None:
    """The same actions; who shared a forward pass may move a logprob by a rounding error."""
    assert set(results) == set(clean)
    for name, result in results.items():
        assert result.error is None, result.error
        assert result.token_ids == clean[name].token_ids
        assert result.logprobs == pytest.approx(clean[name].logprobs, abs=1e-4)


def test_ids_and_logprobs_come_through_as_sampled(serve, connect, model, tokenizer) -> None:
    engine = connect(serve())
    batch = requests(8, temperature=0.7)
    for request in batch:
        result = ask(engine, [request])[request.session_id]
        assert_exact(model, request.token_ids, result, temperature=0.7)
        assert result.text == tokenizer.decode(list(result.token_ids), skip_special_tokens=True)
    assert engine.stats.sampled_tokens > 8


LISTED = [(4, 5, 9), (4, 5, 6, 9), (4, 8, 9), (7, 7, 3, 9)]


def test_listed_answers_are_chosen_among_what_may_come_next(serve, connect, model):
    """A request for each choice, and none where one id alone may come next."""
    server = serve(fault=lambda number: "cut" if number == 5 else None)
    engine = connect(server)
    batch = [
        GenerationRequest(
            f"s{n}",
            (1, 2, n + 1),
            SamplingParams(3 + n % 2, temperature=2.0),
            seed=n,
            choices=Choices.of(LISTED if n else LISTED[-1:]),
        )
        for n in range(30)
    ]
    results = ask(engine, batch)
    assert set(LISTED) <= {result.token_ids for result in results.values()}
    for request in batch[1:]:
        result = results[request.session_id]
        first = {4: (5, 8), 7: (7,)}[result.token_ids[0]]
        assert [ids.tolist() for _, ids in result.supports][:2] == [[4, 7], list(first)]
        assert result.supports.fits(np.array(result.token_ids))
        assert_exact(model, request.token_ids, result, temperature=2.0)
        whole = result.token_ids in LISTED
        assert result.finish_reason == ("stop" if whole else "length")
    assert results["s0"].logprobs == (0.0, 0.0, 0.0)
    assert ("tiny", (1, 2, 1)) not in server.served
    assert engine.stats.extra["retries"] == 1


def test_answers_that_vllm_cannot_choose_are_refused(serve, connect) -> None:
    engine = connect(serve(), vocab_size=2000)

    def error(choices):
        one = GenerationRequest("s", [9], SamplingParams(8), choices=choices)
        return ask(engine, [one])["s"].error

    assert "which tokens a grammar left" in error(Grammar("start: /a/"))
    assert "whole answers" in error(Choices.of(LISTED, whole=True))
    assert "among 1024 ids, not 1025" in error(Choices.of([[k] for k in range(1025)]))


def test_a_server_that_does_not_know_allowed_token_ids_is_refused(serve, connect) -> None:
    engine = connect(serve(heeds_allowed=False))
    choices = Choices.of([(3,), (4,)])
    results = ask(
        engine,
        [GenerationRequest(f"s{n}", [9], SamplingParams(8), n, choices=choices) for n in range(20)],
    )
    assert any("none of the allowed_token_ids" in r.error for r in results.values() if r.error)


def test_sessions_are_spread_and_stay(serve, connect) -> None:
    servers = serve(), serve()
    engine = connect(*servers)
    for _ in range(3):
        ask(engine, requests(40))
    contexts = [{ids for _, ids in server.served} for server in servers]
    assert min(map(len, contexts)) > 5
    assert not contexts[0] & contexts[1]


@pytest.mark.parametrize("fault", ["error", "busy", "cut"])
def test_passing_faults_are_tried_again(serve, connect, fault) -> None:
    clean = ask(connect(serve()), requests(6))
    engine = connect(serve(fault=lambda number: fault if number % 3 == 1 else None))
    assert_same(ask(engine, requests(6)), clean)
    assert engine.stats.extra["retries"] >= 2


def test_a_stalled_request_is_given_up_and_asked_again(serve, connect) -> None:
    server = serve(fault=lambda number: "stall" if number == 1 else None, stall_seconds=30)
    engine = connect(server, request_timeout=0.5)
    assert ask(engine, requests(1))["s0"].error is None
    assert engine.stats.extra["retries"] >= 1


def test_a_dead_servers_sessions_go_on_elsewhere(serve, connect) -> None:
    clean = ask(connect(serve()), requests(16))
    servers = serve(), serve()
    engine = connect(*servers)
    ask(engine, requests(16))
    servers[0].die()
    assert_same(ask(engine, requests(16)), clean)
    assert len(engine.pool.alive) == 1


def test_without_any_server_requests_come_back_as_errors(serve, connect) -> None:
    server = serve()
    engine = connect(server)
    server.die()
    results = ask(engine, requests(5))
    assert all(result.finish_reason == "error" for result in results.values())
    assert server.url in results["s0"].error
    server.start()
    time.sleep(0.6)
    assert ask(engine, requests(5))["s3"].error is None


def test_a_server_that_was_started_again_gets_the_weights_first(serve, connect) -> None:
    server = serve()
    engine = connect(server)
    engine.load(Weights(7, "adapter", "run-v7", "/somewhere/v7"))
    assert ask(engine, requests(1))["s0"].policy_version == 7
    server.die()
    server.start()
    time.sleep(0.6)
    assert ask(engine, requests(1))["s0"].policy_version == 7
    assert server.loaded == ["/somewhere/v7"] * 2
    assert {model for model, _ in server.served} == {"run-v7"}


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"runtime_lora": False}, "adapter", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
        ({"dev_mode": False}, "checkpoint", "VLLM_SERVER_DEV_MODE"),
    ],
)
def test_a_server_that_takes_no_weights_says_what_it_lacks(
    serve, connect, options, kind, words
) -> None:
    engine = connect(serve(**options))
    with pytest.raises(WeightSyncError, match=words):
        engine.load(Weights(1, kind, "new", "/a"))


def test_servers_get_a_tied_output_layer_by_its_own_name(
    serve, connect, tokenizer, tmp_path
) -> None:
    """Without the name those on a CPU would keep the old output layer."""
    from safetensors.torch import load_file

    model = random_llama(tokenizer, tie_word_embeddings=True)
    connect(serve()).update_weights(WeightUpdate(model, 1, tmp_path))
    [file] = tmp_path.rglob("model.safetensors")
    stored = load_file(file)
    assert stored["lm_head.weight"].equal(stored["model.embed_tokens.weight"])
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_logprobs_at_another_temperature_are_refused(serve, connect) -> None:
    with pytest.raises(EngineUnavailable, match="processed_logprobs"):
        connect(serve(raw=True))


def test_a_server_that_answers_alike_whatever_the_seed_is_refused(serve, connect) -> None:
    with pytest.raises(EngineUnavailable, match="two requests with different seeds alike"):
        connect(serve(one_seed=True))


def test_requests_have_seeds_of_their_sessions_or_none(serve, connect) -> None:
    server = serve()
    for seeds in (True, False):
        engine = connect(server, seeds=seeds)
        server.seeds.clear()
        ask(engine, requests(3))
        assert all((seed is not None) == seeds for seed in server.seeds) and len(server.seeds) == 3


def test_an_address_without_a_server_is_refused(tokenizer) -> None:
    with pytest.raises(EngineUnavailable, match="no vLLM server answers"):
        VLLMEngine("http://127.0.0.1:9", tokenizer, retries=QUICK)


def test_another_model_is_refused(serve, connect) -> None:
    with pytest.raises(EngineUnavailable, match="'other', but tiny"):
        connect(serve(), model="other")


def test_impossible_requests_are_answered_with_the_reason(serve, connect) -> None:
    engine = connect(serve(fault=lambda number: "garbage" if number == 1 else None))
    results = ask(
        engine,
        [
            GenerationRequest("garbage", [9], SamplingParams(2)),
            GenerationRequest("empty", [], SamplingParams(2)),
            GenerationRequest("long", [9] * 512, SamplingParams(2)),
            GenerationRequest("truncating", [9], SamplingParams(2, top_p=0.9)),
        ],
    )
    assert "token_ids" in results["garbage"].error
    assert "empty" in results["empty"].error
    assert is_context_overflow(results["long"].error)
    assert "top_p" in results["truncating"].error
    refused = ask(engine, [GenerationRequest("vocabulary", [5000], SamplingParams(2))])
    assert "vocabulary of" in refused["vocabulary"].error


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"token_ids": None}, r"0\.10\.2.*token_ids"),
        ({"token_ids": [1]}, "1 token ids came with 2"),
        ({"finish_reason": "abort"}, "abort"),
        ({"token_ids": [1, 50]}, r"token id 50 is not in \[0, 50\)"),
        ({"token_ids": [1, 1.7]}, r"token_ids\.1: .* not 1\.7"),
        ({"token_ids": [1, True]}, r"token_ids\.1: .* not True"),
        ({"token_ids": [1, 2, 3], "logprobs": {"token_logprobs": [-1.0] * 3}}, "2 were requested"),
        ({"logprobs": {"token_logprobs": [0.5, -1.0]}}, r"token_logprobs\.0: .* not 0\.5"),
        ({"logprobs": {"token_logprobs": [None, -1.0]}}, r"token_logprobs\.0: .* not None"),
        ({"logprobs": {"token_logprobs": [float("nan"), -1.0]}}, "finite number"),
        ({"logprobs": {"token_logprobs": [10**400, -1.0]}}, r"token_logprobs\.0"),
    ],
)
def test_incomplete_answers_are_refused(change, words) -> None:
    choice = {
        "token_ids": [1, 2],
        "logprobs": {"token_logprobs": [-1.0, -2.0]},
        "finish_reason": "stop",
    }
    bounds = {"vocab_size": 50, "max_tokens": 2}
    assert read_completion({"choices": [choice]}, **bounds) == ((1, 2), (-1.0, -2.0), "stop")
    with pytest.raises(MalformedAnswer, match=words):
        read_completion({"choices": [choice | change]}, **bounds)
