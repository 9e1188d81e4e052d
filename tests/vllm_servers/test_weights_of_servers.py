"""Real vLLM servers take new weights while requests are open."""

import copy

import pytest
import torch

from agentsgym.generation.vllm import VLLMEngine
from agentsgym.generation.vllm.holding import ServerHeld
from agentsgym.generation.vllm.weight_files import save
from agentsgym.generation.vllm.weights import Weights
from agentsgym.types import GenerationRequest, SamplingParams, WeightUpdate
from vllm_servers.test_vllm_servers import full_logprobs, load_model

pytestmark = [pytest.mark.doors, pytest.mark.timeout(1200)]


def moved(model, size):
    """A copy whose trained weights are others."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn_like(parameter))
    return other


def play_over_updates(engine, models, update, tokenizer):
    """Requests of `engine` that are open during two updates; returns them with their results."""
    prompt = tokenizer.encode("Is it an animal?")
    requests = {
        f"s{i}": GenerationRequest(f"s{i}", [*prompt, i], SamplingParams(40, 1.0), seed=i)
        for i in range(72)
    }
    waiting, answers = list(requests.values()), {}
    engine.submit(waiting[:24])
    for version in (2, 3):
        del waiting[:24]
        answers |= {result.session_id: result for result in engine.poll()}
        update(models[version], version)
        engine.submit(waiting[:24])
        while version not in {result.policy_version for result in answers.values()}:
            answers |= {result.session_id: result for result in engine.poll()}
    while results := engine.poll():
        answers |= {result.session_id: result for result in results}
    assert [result.error for result in answers.values()] == [None] * len(requests)
    return [(requests[name], result) for name, result in answers.items()]


def assert_sampled_by(models, played):
    for request, result in played:
        ids = [*request.token_ids, *result.token_ids]
        expected = full_logprobs(models[result.policy_version], ids)
        expected = expected[len(request.token_ids) - 1 :]
        torch.testing.assert_close(torch.tensor(result.logprobs), expected, atol=2e-4, rtol=0)


def test_adapters_change_while_requests_are_open(engine, model_dir, chat_tokenizer, tmp_path):
    from peft import LoraConfig, get_peft_model

    layers = ["q_proj", "v_proj", "up_proj", "down_proj"]
    first = get_peft_model(load_model(model_dir), LoraConfig(r=8, target_modules=layers))
    models = {1: moved(first, 0.1), 2: moved(first, 0.2), 3: moved(first, 0.3)}
    engine.update_weights(WeightUpdate(models[1], 1, tmp_path))

    def update(model, version):
        engine.update_weights(WeightUpdate(model, version, tmp_path))

    played = play_over_updates(engine, models, update, chat_tokenizer)
    assert {result.policy_version for _, result in played} == {1, 2, 3}
    assert_sampled_by(models, played)


def test_all_weights_change_while_requests_are_open(engine, model_dir, chat_tokenizer, tmp_path):
    base = load_model(model_dir)
    models = {1: base, 2: moved(base, 0.05), 3: moved(base, 0.1)}
    save(base, tmp_path / "base")
    original = Weights(1, "checkpoint", engine.base_model, str(tmp_path / "base"))
    engine.load(original)

    def update(model, version):
        engine.update_weights(WeightUpdate(model, version, tmp_path / "sync"))

    try:
        played = play_over_updates(engine, models, update, chat_tokenizer)
    finally:
        engine.load(original)
    assert {result.policy_version for _, result in played} == {1, 2, 3}
    assert_sampled_by(models, played)


def test_another_process_knows_which_weights_sampled_its_answers(
    engine, model_dir, chat_tokenizer, tmp_path
):
    """Of two engines over the same servers one replaces all weights, and the other asks."""
    other = engine.elsewhere(chat_tokenizer)
    base = load_model(model_dir)
    models = {1: base, 2: moved(base, 0.05), 3: moved(base, 0.1)}

    def update(model, version):
        engine.update_weights(WeightUpdate(model, version, tmp_path / "sync"))
        other.adopt(engine.weights)

    engine.update_weights(WeightUpdate(base, 1, tmp_path / "sync"))
    other.adopt(engine.weights)
    try:
        played = play_over_updates(other, models, update, chat_tokenizer)
    finally:
        other.close()
        engine.update_weights(WeightUpdate(base, 4, tmp_path / "sync"))
    assert {result.policy_version for _, result in played} == {1, 2, 3}
    assert_sampled_by(models, played)


def test_a_training_neither_shares_its_servers_nor_keeps_them_after_its_end(
    engine, servers, model_dir, chat_tokenizer, tmp_path
):
    base, urls = load_model(model_dir), [server.url for server in servers]
    models = [moved(base, 0.05), moved(base, 0.1)]
    engine.update_weights(WeightUpdate(models[0], 1, tmp_path / "walnut" / "sync"))
    with pytest.raises(ServerHeld, match="walnut"):
        VLLMEngine(urls, chat_tokenizer)
    second = VLLMEngine(urls, chat_tokenizer, take_over=True)
    try:
        second.update_weights(WeightUpdate(models[1], 1, tmp_path / "hazel" / "sync"))
        engine.submit([GenerationRequest("s", [5, 6], SamplingParams(4, 1.0), seed=0)])
        with pytest.raises(ServerHeld, match="hazel"):
            engine.poll()
        request = GenerationRequest("s", [5, 6], SamplingParams(12, 1.0), seed=0)
        second.submit([request])
        [result] = second.poll()
        assert_sampled_by({1: models[1]}, [(request, result)])
        second.update_weights(WeightUpdate(base, 2, tmp_path / "hazel" / "sync"))
    finally:
        second.close()
    third = VLLMEngine(urls, chat_tokenizer)
    third.update_weights(WeightUpdate(base, 1, tmp_path / "beech" / "sync"))
    third.close()
