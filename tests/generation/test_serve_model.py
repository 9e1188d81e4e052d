"""`agentsgym serve-model`: exact tokens for a VLLMEngine, new weights, many clients, faults."""

import copy
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import numpy as np
import openai
import pytest
import torch
from generation_helpers import ask, assert_exact, requests

from agentsgym.generation.http import Retries
from agentsgym.generation.vllm.weights import WeightSyncError
from agentsgym.tokens import codec_for
from agentsgym.tokens.grammars import Grammar, grammar_of
from agentsgym.types import GenerationRequest, Message, ModelCall, WeightUpdate
from agentsgym.types.choices import Choices
from agentsgym.types.requests import is_context_overflow
from agentsgym.types.supports import Supports
from helpers import CHATML, build_tokenizer, random_llama, wait_until
from serve_process import Served

peft = pytest.importorskip("peft")


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(CHATML)


@pytest.fixture(scope="module")
def model(tokenizer):
    return random_llama(tokenizer).eval()


@pytest.fixture
def serve(folder):
    made = []

    def start(**options):
        made.append(Served(folder, **options))
        return made[-1]

    yield start
    for served in made:
        served.close()


@pytest.fixture(scope="module")
def served(folder):
    one = Served(folder)
    yield one
    one.close()


def test_answers_that_are_chosen_on_a_server_say_from_what(served, connect, model):
    engine = connect(served)
    choices = Choices.of([(40, 41, 2), (40, 42, 43, 2), (50, 2)])
    batch = [replace(one, choices=choices) for one in requests(12)]
    results = ask(engine, batch)
    for one in batch:
        result = results[one.session_id]
        assert result.finish_reason == "stop" and result.supports.fits(np.array(result.token_ids))
        assert_exact(model, one.token_ids, result)
        assert result.supports.between(0, 1) == Supports.of([(0, [40, 50])])
    assert {results[one.session_id].token_ids[0] for one in batch} == {40, 50}
    whole = replace(batch[0], choices=Choices.of([(40, 2), (50, 2)], whole=True))
    (refused,) = ask(engine, [whole]).values()
    assert "servers do not choose among whole answers" in refused.error


def test_a_grammar_holds_answers_on_a_server_and_those_of_its_clients(served, connect, model):
    engine = connect(served)
    hi = (Message("user", "hi"),)
    form = {"enum": ["red", "redder", 12]}
    codec = codec_for(engine.tokenizer)
    held = grammar_of(
        codec, engine.tokenizer, ModelCall(hi, form=("json", json.dumps(form))), exact=True
    )
    batch = [replace(one, choices=held) for one in requests(6, max_tokens=20)]
    for name, result in ask(engine, batch).items():
        assert json.loads(engine.tokenizer.decode(result.token_ids[:-1])) in form["enum"]
        (one,) = (one for one in batch if one.session_id == name)
        assert_exact(model, one.token_ids, result)
    (refused,) = ask(engine, [replace(batch[0], choices=Grammar("start: ("))]).values()
    assert "cannot be granted" in refused.error
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="any")
    given = {"type": "json_schema", "json_schema": {"name": "x", "schema": form}}
    answer = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Hi"}], response_format=given
    )
    assert json.loads(answer.choices[0].message.content) in form["enum"]


def test_a_training_engine_gets_exact_tokens_over_several_turns(served, connect, model):
    engine = connect(served)
    batch = requests(12, temperature=0.7)
    for _ in range(3):
        results = ask(engine, batch)
        for request in batch:
            assert_exact(model, request.token_ids, results[request.session_id], temperature=0.7)
        batch = [
            GenerationRequest(
                one.session_id,
                [*one.token_ids, *results[one.session_id].token_ids, 30],
                one.sampling,
                one.seed,
                one.sampled_before + 6,
            )
            for one in batch
        ]
    assert served.engine.stats.extra["reused_tokens"] > 50  # a session keeps its cache


def test_full_weights_are_replaced_or_kept(serve, connect, tokenizer, model, tmp_path):
    engine = connect(serve())
    other = random_llama(tokenizer, seed=1).eval()
    engine.update_weights(WeightUpdate(other, 3, tmp_path))
    for request in requests(3):
        result = ask(engine, [request])[request.session_id]
        assert_exact(other, request.token_ids, result)
        assert result.policy_version == 3
    wrong = random_llama(tokenizer, hidden_size=16)
    with pytest.raises(WeightSyncError, match="has another shape"):
        engine.update_weights(WeightUpdate(wrong, 4, tmp_path))
    served = engine.pool.servers[0].url
    answer = httpx.post(f"{served}/v1/completions", json={"model": "m", "prompt": [9], "seed": 4})
    choice = answer.json()["choices"][0]
    with torch.no_grad():
        logits = other(torch.tensor([[9, *choice["token_ids"]]])).logits[0].log_softmax(-1)
    assert choice["logprobs"]["token_logprobs"][0] == pytest.approx(
        float(logits[0, choice["token_ids"][0]]), abs=1e-4
    )


def adapted(model, seed):
    torch.manual_seed(seed)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", target_modules=["q_proj", "down_proj"], init_lora_weights=False
    )
    return peft.get_peft_model(copy.deepcopy(model), config).eval()


def test_versions_of_an_adapter_are_sampled_side_by_side(serve, connect, model, tmp_path):
    served = serve()
    engine, versions = connect(served), [adapted(model, seed) for seed in (1, 2)]
    names = []
    for number, version in enumerate(versions, 1):
        engine.update_weights(WeightUpdate(version, number, tmp_path))
        names.append(engine.weights.model)
        request = requests(1)[0]
        assert_exact(version, request.token_ids, ask(engine, [request])["s0"])
    listed = [entry["id"] for entry in httpx.get(f"{served.url}/v1/models").json()["data"]]
    assert listed == ["m", *names]

    def complete(number):
        name = listed[number % 3]
        choice = served.post(model=name, prompt=[7 + number]).json()["choices"][0]
        return number, choice["token_ids"], choice["logprobs"]["token_logprobs"]

    with ThreadPoolExecutor(9) as pool:
        for number, ids, logprobs in pool.map(complete, range(9)):
            whole = torch.tensor([[7 + number, *ids]])
            with torch.no_grad():
                expected = (model, *versions)[number % 3](whole).logits[0].log_softmax(-1)
            chosen = expected[:-1].gather(1, torch.tensor(ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(logprobs), chosen, atol=1e-4, rtol=0)


REFUSED = {
    "an unknown model": ({"model": "x"}, 404, "there is no model 'x'; there is m"),
    "an id below zero": ({"prompt": [-1]}, 400, "prompt.0: Input should be greater"),
    "an id of no token": ({"prompt": [5, 2**30]}, 400, "is outside the vocabulary"),
    "a long context": ({"prompt": [5] * 400}, 400, "leaves no room in the model's 400"),
    "answers that begin each other": (
        {"allowed_answers": [[5], [5, 6]]},
        400,
        "begins another one",
    ),
    "several answers": ({"n": 2}, 400, "n is not offered here"),
    "an empty stop": ({"stop": [""]}, 400, "stop strings must not be empty"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_request_gets_a_sentence_and_the_next_one_an_answer(served, name):
    body, status, words = REFUSED[name]
    answer = served.post(**body)
    error = answer.json()["error"]
    assert answer.status_code == status and set(error) == {"message", "type", "param", "code"}
    assert re.search(words, error["message"])
    assert served.post().status_code == 200


def test_keys_and_values_have_a_budget(serve):
    """Two blocks of 32 tokens, 256 bytes each."""
    served = serve(cache_gib=64 * 256 / 2**30)
    answer = served.post(prompt=[5] * 60, max_tokens=5)
    assert answer.status_code == 400 and "64 tokens (engine.cache_gib)" in answer.text
    assert served.post(prompt=[5] * 60, max_tokens=4).status_code == 200


def test_bodies_that_are_no_json_and_other_routes_are_refused(served):
    for content in (b"", b"{", b"[1]", b"\xff"):
        answer = httpx.post(f"{served.url}/v1/completions", content=content)
        assert answer.status_code == 400 and answer.json()["error"]["message"]
    bad = {"/collective_rpc": {"method": "shutdown"}, "/pause?mode=abort": {}}
    bad |= {"/v1/load_lora_adapter": {"lora_name": "a", "lora_path": "/nowhere"}}
    for path, body in bad.items():
        assert served.post(path, **body).status_code == 400
    assert httpx.get(f"{served.url}/v1/nothing").status_code == 404


PATHS = {
    "a long path": "/" + "x" * 100_000,
    "a path below a file": f"{__file__}/x",
    "no character": "/\0",
}


@pytest.mark.parametrize("name", PATHS)
def test_a_path_that_cannot_be_read_is_refused_in_few_words(served, name, caplog):
    bodies = {
        "/v1/load_lora_adapter": {"lora_name": "a", "lora_path": PATHS[name]},
        "/collective_rpc": {"method": "reload_weights", "kwargs": {"weights_path": PATHS[name]}},
    }
    for path, body in bodies.items():
        answer = served.post(path, **body)
        assert answer.status_code == 400
        assert len(answer.json()["error"]["message"]) < 5000
    name = served.post("/v1/load_lora_adapter", lora_name="n" * 100_000, lora_path="/nowhere")
    assert name.status_code == 400 and len(name.text) < 5000
    assert sum(len(record.getMessage()) for record in caplog.records) < 5000
    assert served.post().status_code == 200


def test_a_key_is_wanted_everywhere_but_at_health(serve, connect):
    served = serve(key="key-of-the-test")
    assert httpx.get(f"{served.url}/health").status_code == 200
    for path in ("/v1/completions", "/pause", "/collective_rpc"):
        assert served.post(path).status_code == 401
        assert served.post(path, key="wrong").status_code == 401
    assert served.post(key="key-of-the-test").status_code == 200
    assert ask(connect(served, api_key="key-of-the-test"), requests(2))["s1"].error is None


def test_a_pause_lets_open_requests_end_and_holds_the_others(serve):
    served = serve()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(served.post, max_tokens=200, seed=1, stop=["\0"])
        wait_until(lambda: served.batcher._open)
        assert served.post("/pause?mode=wait").status_code == 200
        assert first.result().status_code == 200
        second = pool.submit(served.post)
        time.sleep(0.2)
        assert not second.done() and not served.batcher._open
        served.post("/resume")
        assert second.result().status_code == 200


class Slow:
    """Makes each pass of an engine take a while, and counts them."""

    def __init__(self, engine, seconds):
        self.passes, forward = 0, engine._forward
        engine._is_stop[:] = False

        def slow():
            self.passes += 1
            time.sleep(seconds)
            forward()

        engine._forward = slow


def test_a_request_joins_those_that_are_being_sampled(serve):
    served = serve()
    slow = Slow(served.engine, 0.01)
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(served.post, max_tokens=80)
        wait_until(lambda: slow.passes > 2)
        assert len(served.post(max_tokens=3).json()["choices"][0]["token_ids"]) == 3
        assert not long.done()
        assert len(long.result().json()["choices"][0]["token_ids"]) == 80


def test_a_client_that_goes_takes_its_request_back(serve):
    served = serve()
    slow = Slow(served.engine, 0.01)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{served.url}/v1/completions",
            json={"model": "m", "prompt": [5], "max_tokens": 390},
            timeout=0.3,
        )
    wait_until(lambda: not served.batcher._open)
    assert slow.passes < 200 and not served.engine._requests


def test_a_dead_engine_answers_everybody_at_once(serve, connect):
    served = serve()
    engine = connect(served, retries=Retries(attempts=1))

    def dies():
        time.sleep(0.2)
        raise MemoryError("no memory is left")

    served.engine._forward = dies
    results = ask(engine, requests(6)).values()
    assert all("MemoryError: no memory is left" in result.error for result in results)
    for answer in (served.post(), httpx.get(f"{served.url}/health")):
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "server_error"


def test_a_call_is_rendered_by_the_models_own_template(served, tokenizer, monkeypatch):
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="any")
    messages = [{"role": "user", "content": "Hi"}]
    asked = []

    def ask(request, model, ask=served.batcher.ask):
        asked.append(tuple(request.token_ids))
        return ask(request, model)

    monkeypatch.setattr(served.batcher, "ask", ask)
    answer = client.chat.completions.create(model="m", messages=messages, max_tokens=8)
    context = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert asked == [tuple(context)] and answer.usage.prompt_tokens == len(context)
    assert 1 <= answer.usage.completion_tokens <= 8
    long = [{"role": "user", "content": "x " * 2000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=long)
    assert is_context_overflow(str(caught.value))
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    with pytest.raises(openai.BadRequestError, match="does not show tools"):
        client.chat.completions.create(model="m", messages=messages, tools=[tool])
