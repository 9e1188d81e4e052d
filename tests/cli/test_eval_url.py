"""`agentsgym eval http://HOST:PORT`: the address itself says what is there."""

import json
import time

import pytest

from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.endpoint import NothingThere, ask
from completions_server import CompletionsServer

KEY = "sk-8f2c91aa77"
BANDIT = ("--env", "Bandit", "--episodes", "4", "--json")
DIGIT = ("--env", "digit.DigitEnv", "--episodes", "4", "--json")
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def chat(serve):
    return serve()


@pytest.fixture
def vllm(workplace, tiny_llama, chat_tokenizer):
    """A vLLM server that calls its model by its directory, as vLLM does by default."""
    names = (str(workplace / "model"),)
    server = CompletionsServer(EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=64), names=names)
    yield server
    server.close()


def figures(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_vllm_server_whose_model_is_a_directory_here_is_asked_with_token_ids(invoke, vllm):
    result = invoke("eval", vllm.url, *DIGIT)
    assert figures(result)["failures"] == 0 and vllm.completions > 0
    assert "with the tokenizer of" in result.stderr
    played = invoke("play", "digit.DigitEnv", "--agent", f"{vllm.url}/v1")
    assert played.exit_code == 0 and "The agent" in played.stdout, played.output


def test_the_tokenizer_of_a_vllm_server_can_be_named(invoke, vllm):
    vllm.rename("org/some-model")
    result = invoke("eval", vllm.url, *DIGIT, "model.path=model")
    assert figures(result)["failures"] == 0
    assert {model for model, _ in vllm.served} == {"org/some-model"}


def test_another_endpoint_is_asked_by_chat(invoke, chat):
    nameless = invoke("eval", chat.url, *BANDIT)
    assert nameless.exit_code == 2 and "lists no models" in nameless.stderr
    result = invoke("eval", chat.url, *BANDIT, "engine.served_model=m")
    assert figures(result)["failures"] == 0
    assert {body["model"] for body in chat.bodies} == {"m"}


def test_an_endpoint_that_lists_its_models_needs_no_name(invoke, chat):
    chat.names = ["gpt-small", "gpt-large"]
    assert ask(chat.url, None).names == ("gpt-small", "gpt-large")
    assert figures(invoke("eval", chat.url, *BANDIT))["failures"] == 0
    assert {body["model"] for body in chat.bodies} == {"gpt-small"}


def test_a_vllm_server_without_a_tokenizer_here_is_asked_by_chat(chat):
    chat.names = ["org/some-model"]
    chat.listed = {"owned_by": "vllm", "root": "org/some-model", "max_model_len": 512}
    endpoint = ask(chat.url, None)
    assert endpoint.is_vllm and endpoint.folder is None


@pytest.mark.parametrize(
    "command",
    [
        ("eval", NOBODY, *BANDIT),
        ("eval", "chat:m", *BANDIT, f"engine.urls={NOBODY}"),
        ("play", "Bandit", "--agent", "chat:m", f"engine.urls={NOBODY}"),
    ],
)
def test_an_address_where_nothing_answers_is_noticed_at_once(invoke, command):
    started = time.monotonic()
    result = invoke(*command)
    assert result.exit_code == 1 and "nothing answers at" in result.stderr, result.output
    assert NOBODY in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert time.monotonic() - started < 10


def test_an_address_takes_no_second_one(invoke):
    result = invoke("eval", NOBODY, *BANDIT, "engine.urls=http://b")
    assert result.exit_code == 2 and "already says where the model is" in result.stderr


def test_the_key_is_sent_when_an_address_is_asked(tiny_llama, chat_tokenizer, monkeypatch):
    server = CompletionsServer(EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=4), key=KEY)
    monkeypatch.setenv("SOME_KEY", KEY)
    try:
        assert ask(server.url, None).names == ()
        assert ask(server.url, "SOME_KEY").names == ("tiny",)
    finally:
        server.close()
    with pytest.raises(NothingThere):
        ask(server.url, None)
