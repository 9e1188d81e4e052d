"""Chat endpoints as agents and as answerer, against a local HTTP server that misbehaves."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentsgym import DirectOutputAgent, register
from agentsgym.envs.twenty_questions.answerer import LLMAnswerer, normal_question
from agentsgym.generation.chat import ChatEngine, EndpointError, completions_url
from agentsgym.generation.http import Retries
from agentsgym.generation.settings import MissingKey
from agentsgym.rollout import run
from chat_server import ChatServer
from helpers import CountdownEnv, questions_answered_by

QUICK = Retries(attempts=4, first_delay=0.05, longest_delay=0.2)
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def serve():
    """Returns a function that starts a server; options are ChatServer's."""
    started = []

    def start(**options):
        started.append(ChatServer(**options))
        return started[-1]

    yield start
    for server in started:
        server.close()


def client(server, **options):
    return ChatEngine(server.url, "some-model", **({"key_env": None, "retries": QUICK} | options))


def test_an_answer_and_its_tokens(serve):
    server = serve()
    asking = client(server)
    assert asking.complete(HELLO) == "HELLO"
    assert server.bodies[0]["messages"] == HELLO and server.bodies[0]["model"] == "some-model"
    stats = asking.stats
    assert (stats.extra["requests"], stats.read_tokens, stats.sampled_tokens) == (1, 100, 5)


@pytest.mark.parametrize("fault", [500, 503, 429, "cut", "stall", "page"])
def test_a_passing_fault_is_tried_again(serve, fault):
    server = serve(fault=lambda number: fault if number < 3 else None)
    asking = client(server, request_timeout=0.5)
    assert asking.complete(HELLO) == "HELLO"
    assert asking.stats.extra == {"requests": 1, "retries": 2, "failures": 0}


def test_an_endpoint_that_never_answers_is_an_error(serve):
    with pytest.raises(EndpointError, match=r"gave no answer \(attempts: 4\).* HTTP 503"):
        client(serve(fault=lambda _: 503)).complete(HELLO)
    gone = ChatEngine("http://127.0.0.1:9", "m", key_env=None, retries=Retries(1))
    with pytest.raises(EndpointError, match="attempts: 1"):
        gone.complete(HELLO)


def test_a_lasting_fault_is_not_tried_again(serve, monkeypatch):
    server = serve(key="right")
    monkeypatch.setenv("SOME_KEY", "wrong")
    with pytest.raises(EndpointError, match=r"Incorrect API key \(is the key right\?"):
        client(server, key_env="SOME_KEY").complete(HELLO)
    assert len(server.bodies) == 1
    monkeypatch.setenv("SOME_KEY", "right")
    assert client(server, key_env="SOME_KEY").complete(HELLO) == "HELLO"


def test_a_missing_key_names_the_variable(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(MissingKey, match="SOME_KEY"):
        ChatEngine("http://127.0.0.1:9", "m", key_env="SOME_KEY")


def test_addresses():
    whole = "http://host:1/v1/chat/completions"
    assert completions_url("host:1") == whole
    assert completions_url("http://host:1/v1/") == whole
    assert completions_url(whole) == whole
    assert completions_url("https://host/api/v2") == "https://host/api/v2/chat/completions"
    assert completions_url("http://host:1/?key=a") == f"{whole}?key=a"


def rows(count):
    register("Countdown", CountdownEnv)
    task = {"rewards": [0.0, 0.0, 1.0]}
    return [{"env_class_path": "Countdown", "env_config": {}, "task_data": task}] * count


def test_an_agent_plays_many_sessions_at_once(serve):
    server = serve(delay=0.05)
    agent = DirectOutputAgent(client(server, capacity=6))
    batch = run(rows(12), agent)
    assert batch["final_rewards"] == [1.0] * 12
    assert server.most_at_once == 6
    assert batch.rollouts[0].episodes[0].messages[1]["content"] == "IS IT AN ANIMAL?"
    assert batch.rows == ()
    assert agent.engine.stats.extra["requests"] == 36
    text, _ = agent.get_action(HELLO, None)
    assert text == "HELLO"


def test_an_environment_with_a_tokenizer_encodes_what_an_endpoint_says(serve, plain_tokenizer):
    agent = DirectOutputAgent(client(serve()))
    batch = CountdownEnv(plain_tokenizer).run_trial([{"rewards": [1.0]}], agent)
    (row,) = batch.rows
    (span,) = row.spans
    action = plain_tokenizer.decode(row.token_ids[span.start : span.stop])
    assert not row.sampled and action == batch.rollouts[0].episodes[0].messages[1]["content"]


def test_only_the_sessions_that_got_no_answer_fail(serve):
    server = serve(fault=lambda number: 400 if number == 5 else None)
    batch = run(rows(4), DirectOutputAgent(client(server)))
    assert sorted(r.failed for r in batch.rollouts) == [False, False, False, True]
    assert "HTTP 400" in next(r.error for r in batch.rollouts if r.failed)


def test_the_answerer_gives_one_of_three_answers_and_asks_once(serve):
    replies = {"is it alive": "Yes, a cat is alive.", "is it big": "no", "hm": "It is a cat."}
    server = serve(say=lambda messages: replies[normal_question(messages[-1]["content"])])
    answerer = LLMAnswerer(client(server).complete)
    assert answerer.answer("cat", "Is it alive?").text == "Yes"
    assert answerer.answer("Cat", "  is it  ALIVE ").text == "Yes"
    assert answerer.answer("cat", "Is it big?").text == "No"
    assert len(server.bodies) == 2
    vague = answerer.answer("cat", "hm?")
    assert vague.text == "I don't know" and not vague.parsed
    assert len(server.bodies) == 4


def test_a_group_asks_a_question_once(serve):
    server = serve(say=lambda _: "No", delay=0.2)
    answerer = LLMAnswerer(client(server).complete)
    barrier = threading.Barrier(8)

    def ask(_):
        barrier.wait()
        return answerer.answer("cat", "Is it big?").text

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(8))) == ["No"] * 8
    assert len(server.bodies) == 1


def test_an_error_is_not_remembered(serve):
    server = serve(say=lambda _: "Yes", fault=lambda number: 400 if number == 1 else None)
    answerer = LLMAnswerer(client(server).complete)
    with pytest.raises(EndpointError):
        answerer.answer("cat", "Is it big?")
    assert answerer.answer("cat", "Is it big?").text == "Yes"


def test_the_secret_stays_with_the_answerer(serve):
    """The answering model blurts it out; the player never reads it."""
    server = serve(say=lambda messages: f"Yes! {messages[0]['content']}")
    env = questions_answered_by(LLMAnswerer(client(server).complete))
    assert env.blocking
    secret = env.table.secrets[0]

    class Asker:
        def get_action(self, messages, agent_state):
            return f"Question {len(messages)}?", None

    batch = env.run_trial([{"solution": secret, "seed": 0}], Asker())
    (rollout,) = batch.rollouts
    assert rollout.error is None and len(rollout.episodes[0].steps) == 20
    assert secret in server.bodies[0]["messages"][0]["content"]
    observations = [m["content"] for m in rollout.episodes[0].messages if m["role"] == "user"]
    assert all(text.startswith("Yes.") for text in observations[1:])
    assert all(secret not in text.casefold() for text in observations)
