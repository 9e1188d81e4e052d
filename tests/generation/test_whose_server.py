"""A server belongs to one training: several of them over one of our own servers."""

import copy
import threading

import httpx
import pytest
import torch
from generation_helpers import ask, assert_exact, requests

from agentsgym.generation.vllm import VLLMEngine, holding
from agentsgym.generation.vllm.holding import ServerHeld
from agentsgym.generation.vllm.weights import ServerMark, WeightSyncError
from agentsgym.types import WeightUpdate
from helpers import CHATML, build_tokenizer, random_llama, wait_until
from serve_process import Served

peft = pytest.importorskip("peft")


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(CHATML)


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    changed(random_llama(tokenizer), 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def server(folder):
    served = Served(folder)
    yield served
    served.close()


@pytest.fixture
def connect(server, tokenizer):
    made = []

    def make(url=server.url, **options):
        made.append(VLLMEngine(url, tokenizer, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def hasty(monkeypatch):
    """Marks are renewed twenty times a second."""
    monkeypatch.setattr(holding, "BEAT_SECONDS", 0.05)


def changed(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="module")
def learned(tokenizer):
    """The models of two trainings."""
    return [changed(random_llama(tokenizer), seed) for seed in (1, 2)]


def load(engine, model, run, version=0):
    engine.update_weights(WeightUpdate(model, version, run / "checkpoints" / "sync"))


def assert_samples(engine, model):
    for request in requests(3):
        result = ask(engine, [request])[request.session_id]
        assert_exact(model, request.token_ids, result)


@pytest.mark.usefixtures("hasty")
def test_a_server_that_another_training_holds_is_refused_with_its_name(connect, learned, tmp_path):
    """Also for an evaluation, and if both began before either had weights."""
    first, early = connect(), connect()
    load(first, learned[0], tmp_path / "walnut")
    with pytest.raises(ServerHeld, match=r"is held by the training in .*/walnut/checkpoints"):
        connect()
    with pytest.raises(ServerHeld, match="walnut"):
        load(early, learned[1], tmp_path / "hazel")
    assert_samples(first, learned[0])


@pytest.mark.usefixtures("hasty")
def test_a_training_whose_server_is_taken_over_ends(connect, learned, tmp_path):
    first = connect()
    load(first, learned[0], tmp_path / "walnut")
    second = connect(take_over=True)
    load(second, learned[1], tmp_path / "hazel")
    with pytest.raises(ServerHeld, match="hazel"):
        ask(first, requests(3))
    with pytest.raises(ServerHeld, match="hazel"):
        load(first, learned[0], tmp_path / "walnut", version=1)
    assert_samples(second, learned[1])
    load(second, learned[0], tmp_path / "hazel", version=1)
    assert_samples(second, learned[0])


def test_a_taken_server_stays_taken_if_its_holder_renewed_its_mark_at_that_moment(
    connect, server, learned, tmp_path
):
    """The holder read its own mark before the other one wrote its."""
    load(connect(), learned[0], tmp_path / "walnut")
    second = connect(take_over=True)
    theirs = version_of(server)

    def write_over():
        wait_until(lambda: version_of(server) != theirs)
        set_version(server, theirs)

    holder = threading.Thread(target=write_over)
    holder.start()
    load(second, learned[1], tmp_path / "hazel")
    holder.join()
    assert_samples(second, learned[1])


def test_a_training_that_ends_lets_its_server_go(connect, learned, tmp_path):
    first = connect()
    load(first, learned[0], tmp_path / "walnut")
    first.close()
    reader = connect()
    assert_samples(reader, learned[0])
    second = connect()
    load(second, learned[1], tmp_path / "hazel")
    assert_samples(second, learned[1])
    with pytest.raises(ServerHeld, match="hazel"):  # the evaluation would mix two models
        ask(reader, requests(3))


def test_a_server_that_is_loaded_and_let_go_while_it_is_evaluated_ends_the_evaluation(
    connect, learned, tmp_path
):
    reader = connect()
    assert ask(reader, requests(1))["s0"].error is None
    first = connect()
    load(first, learned[0], tmp_path / "walnut")
    first.close()
    assert "got other weights" in ask(reader, requests(1))["s0"].error


@pytest.mark.usefixtures("hasty")
def test_the_server_of_a_training_that_was_killed_is_free_when_its_mark_has_not_changed_for_long(
    connect, server, learned, tmp_path, caplog
):
    mark = ServerMark(holder="1", where="there:/walnut", beat=7, version=3, path="/gone")
    set_version(server, f"agentsgym:{mark.model_dump_json()}")
    httpx.post(f"{server.url}/pause?mode=wait")  # it was killed while it loaded weights
    second = connect()
    assert "held by the training in there:/walnut" in caplog.text
    load(second, learned[1], tmp_path / "hazel")
    assert_samples(second, learned[1])


def version_of(server):
    return httpx.get(f"{server.url}/weight_info").json()["weight_version"]


def set_version(server, text):
    body = {"new_version": text}
    assert httpx.post(f"{server.url}/update_weight_version", json=body).status_code == 200


def test_of_two_trainings_that_begin_at_once_one_gets_the_server(connect, learned, tmp_path):
    engines = [connect(), connect()]
    outcomes = [None, None]

    def begin(number):
        try:
            load(engines[number], learned[number], tmp_path / f"run{number}")
        except ServerHeld as error:
            outcomes[number] = str(error)

    threads = [threading.Thread(target=begin, args=[number]) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [number for number in (0, 1) if outcomes[number] is None]
    assert f"run{winner}" in outcomes[1 - winner]
    assert_samples(engines[winner], learned[winner])


def test_adapters_want_the_weights_that_the_server_was_started_with(
    connect, learned, tokenizer, folder, tmp_path
):
    first = connect()
    load(first, learned[0], tmp_path / "walnut")
    first.close()
    second = connect()
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])
    adapted = peft.get_peft_model(copy.deepcopy(learned[1]), config)
    with pytest.raises(WeightSyncError, match=r"has the weights of .*walnut.*start it again"):
        load(second, adapted, tmp_path / "hazel")


def test_a_training_gives_its_weights_again_to_a_server_that_lost_them(
    connect, server, learned, tmp_path
):
    """As one that was started again between two requests."""
    engine = connect()
    load(engine, learned[0], tmp_path / "walnut")
    set_version(server, "default")
    assert_samples(engine, learned[0])


@pytest.mark.parametrize(
    "text", ["default", "", "5", "null", "agentsgym:{", "agentsgym:{}", '{"beat": "x"}']
)
def test_weight_versions_of_others_are_marks_of_nobody(text):
    assert ServerMark.of(text) == ServerMark()


@pytest.mark.usefixtures("hasty")
def test_a_training_that_was_stopped_meanwhile_gives_its_weights_again(
    connect, learned, tmp_path, monkeypatch
):
    """It may have written over the mark of another, whose weights the server then has."""
    engine = connect()
    load(engine, learned[0], tmp_path / "walnut")
    monkeypatch.setattr(holding, "WATCH_BEATS", 0)  # each renewal comes too late
    server = engine.pool.servers[0]
    wait_until(lambda: server.mark.path == "unknown")
    monkeypatch.undo()
    assert_samples(engine, learned[0])
