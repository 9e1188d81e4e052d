"""New weights for vLLM servers while requests are open; real vLLM: tests/vllm_servers."""

import copy
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from generation_helpers import ask, assert_exact, drain, requests

from agentsgym.generation.http import Retries
from agentsgym.generation.loop_thread import LoopDied
from agentsgym.generation.vllm.weight_files import save
from agentsgym.generation.vllm.weights import Weights, WeightSyncError
from agentsgym.types import WeightUpdate
from helpers import wait_until

SECONDS = 0.4


def adapter(version):
    return Weights(version, "adapter", f"run-v{version}", f"/v{version}")


def first_stalls(number):
    return "stall" if number == 1 else None


@pytest.fixture
def checkpoints(model, tmp_path):
    """Models of the versions 1 and 2, and the full weights of both on disk."""
    saved = {}
    for version in (1, 2):
        changed = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in changed.parameters():
                parameter.add_(0.3 * version * torch.randn_like(parameter))
        path = tmp_path / f"v{version}"
        save(changed, path)
        saved[version] = changed, Weights(version, "checkpoint", "tiny", str(path))
    return saved


def test_open_requests_finish_on_their_adapter_and_new_ones_use_the_new(serve, connect) -> None:
    server = serve(fault=first_stalls, stall_seconds=SECONDS)
    engine = connect(server)
    engine.load(adapter(1))
    slow, fast = requests(2)
    engine.submit([slow])
    wait_until(lambda: server.open)
    engine.load(adapter(2))
    assert engine.policy_version == 2
    engine.submit([fast])
    first, last = engine.poll(), drain(engine)
    assert [(result.session_id, result.policy_version) for result in first] == [("s1", 2)]
    assert last["s0"].policy_version == 1
    assert server.served == [
        ("run-v2", tuple(fast.token_ids)),
        ("run-v1", tuple(slow.token_ids)),
    ]


def test_only_the_newest_files_are_kept(serve, connect, model, tmp_path) -> None:
    engine = connect(serve(follow=True))
    for version in (1, 2, 3, 4):
        engine.update_weights(WeightUpdate(model, version, tmp_path))
        ask(engine, requests(2))
    assert {path.name.rpartition("-v")[2] for path in tmp_path.iterdir()} == {"3", "4"}


def test_every_answer_names_the_full_weights_that_sampled_it(
    serve, connect, model, checkpoints
) -> None:
    servers = serve(follow=True, load_seconds=0.02), serve(follow=True)
    engine = connect(*servers)
    models = {0: model, 1: checkpoints[1][0], 2: checkpoints[2][0]}
    by_session = {request.session_id: request for request in requests(40, tokens=12)}
    answers = {}
    waiting = list(by_session.values())
    for version in (1, 2):
        engine.submit(waiting[:12])
        del waiting[:12]
        answers |= {result.session_id: result for result in engine.poll()}
        engine.load(checkpoints[version][1])
        engine.submit(waiting[:4])
        del waiting[:4]
        while version not in {result.policy_version for result in answers.values()}:
            answers |= {result.session_id: result for result in engine.poll()}
    answers |= ask(engine, waiting)
    assert set(answers) == set(by_session)
    assert {result.policy_version for result in answers.values()} == {0, 1, 2}
    for name, result in answers.items():
        assert_exact(models[result.policy_version], by_session[name].token_ids, result)
    assert [server.held for server in servers] == [[], []]


def test_processes_that_share_servers_know_which_full_weights_sampled_their_answers(
    serve, connect, beside, model, checkpoints
) -> None:
    """One loads them at any time; the server tells the others which ones it has."""
    servers = serve(follow=True, load_seconds=0.02), serve(follow=True)
    learner = connect(*servers)
    other = beside(learner)
    first = replace(checkpoints[1][1], version=0, path=f"{checkpoints[1][1].path}0")
    save(model, Path(first.path))
    learner.load(first)
    other.adopt(learner.weights)
    models = {0: model, 1: checkpoints[1][0], 2: checkpoints[2][0]}
    by_session = {request.session_id: request for request in requests(60, tokens=12)}
    waiting, answers = list(by_session.values()), {}
    for version in (0, 1, 2):
        other.submit(waiting[:20])
        del waiting[:20]
        while version not in {result.policy_version for result in answers.values()}:
            results = other.poll()
            assert results
            answers |= {result.session_id: result for result in results}
        if version < 2:
            learner.load(checkpoints[version + 1][1])
            other.adopt(learner.weights)
    answers |= drain(other)
    assert set(answers) == set(by_session)
    for name, result in answers.items():
        assert result.error is None
        assert_exact(models[result.policy_version], by_session[name].token_ids, result)
    assert [server.held for server in servers] == [[], []]


def test_weights_that_are_loaded_while_a_process_is_told_of_them_are_recorded(
    serve, connect, beside, model, checkpoints
) -> None:
    """When another rank is told what rank 0 loads, the servers have it already."""
    server = serve(follow=True)
    learner = connect(server)
    other = beside(learner)
    learner.load(checkpoints[1][1])
    other.adopt(learner.weights)
    [request] = requests(1)
    results = []

    def gather(values):
        if values == [1]:  # both ranks have entered the update; rank 0 is quick
            learner.load(checkpoints[2][1])
            results.extend(ask(other, [request]).values())
            return [0, 1]
        return [(learner.weights, ""), *values]

    path = Path(checkpoints[2][1].path).parent
    other.update_weights(WeightUpdate(model, 2, path, rank=1, gather=gather))
    assert [result.policy_version for result in results] == [2] and other.policy_version == 2
    assert_exact(checkpoints[2][0], request.token_ids, results[0])


def test_a_server_that_failed_to_load_is_of_no_version(serve, connect, beside, checkpoints) -> None:
    """It may have parts of two."""
    server = serve(follow=True)
    learner = connect(server, retries=Retries(1))
    other = beside(learner)
    learner.load(checkpoints[1][1])
    other.adopt(learner.weights)
    assert ask(other, requests(1))["s0"].policy_version == 1
    missing = replace(checkpoints[2][1], path=f"{checkpoints[2][1].path}-missing")
    with pytest.raises(WeightSyncError):
        learner.load(missing)
    assert not server.is_paused
    other.release(["s0"])
    assert "weights" in ask(other, requests(1))["s0"].error


def test_a_server_that_was_left_out_is_used_again_by_all_processes(
    serve, connect, beside, checkpoints, caplog
) -> None:
    servers = serve(follow=True), serve(follow=True)
    learner = connect(*servers)
    other = beside(learner)
    learner.load(checkpoints[1][1])
    servers[0].die()
    learner.load(checkpoints[2][1])
    other.adopt(learner.weights)
    assert {result.policy_version for result in ask(other, requests(2)).values()} == {2}
    servers[0].start()
    newest = replace(checkpoints[1][1], version=3)
    learner.load(newest)
    other.adopt(learner.weights)
    wait_until(lambda: len(other.pool.alive) == 2)
    other.release(["s0", "s1"])
    servers[0].served.clear()
    assert {result.policy_version for result in ask(other, requests(12)).values()} == {3}
    assert servers[0].served


def test_a_server_that_a_dead_learner_left_paused_is_resumed_by_the_next_one(
    serve, connect, checkpoints
) -> None:
    server = serve(follow=True)
    server.pause()
    learner = connect(server)
    learner.load(checkpoints[1][1])
    batch = requests(1)
    assert_exact(checkpoints[1][0], batch[0].token_ids, ask(learner, batch)["s0"])


def in_a_thread(work, *arguments, **options):
    thread = threading.Thread(target=work, args=arguments, kwargs=options)
    thread.start()
    return thread


def test_a_learner_that_ends_while_a_server_finishes_its_requests_resumes_it(
    serve, connect, beside, checkpoints
) -> None:
    server = serve(follow=True, fault=first_stalls)
    learner = connect(server)
    other = beside(learner)
    other.submit(requests(1))
    wait_until(lambda: server.open)

    def load():
        with pytest.raises(LoopDied):
            learner.load(checkpoints[1][1])

    loading = in_a_thread(load)
    wait_until(lambda: server.is_paused)
    learner.close()
    wait_until(lambda: not server.is_paused)
    assert not server.loaded
    loading.join()
