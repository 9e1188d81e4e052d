"""Passes as CUDA graphs, on a simulated GPU."""

import copy
import logging
from typing import Any

import pytest
import torch
from generation_helpers import ask, build_model, drain, play, requests

from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.embedded.graphs import Graphs
from agentsgym.types import GenerationRequest, SamplingParams
from family_models import CHANGES, family_model
from simgpu import SimGPU  # first: autograd counts devices at the first backward pass

PLAIN = {"qwen3_next", "qwen3_5_text", "granitemoehybrid", "lfm2", "falcon_h1", "deepseek_v3"}
PLAIN |= {"gemma4_text"}
QUICK = {"llama", "gemma3_text"}
FAMILIES = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name in sorted(CHANGES.keys() - PLAIN)
]


def games(model: Any, tokenizer: Any) -> tuple[list[Any], EmbeddedEngine]:
    engine = EmbeddedEngine(model, tokenizer, capacity=3)
    played = [
        play(engine, 4, 3, temperature=temperature, longest=5, prompt=prompt)
        for temperature, prompt in ((0.0, range(2, 42)), (0.7, ()))
    ]
    params = SamplingParams(max_tokens=6, top_k=7, top_p=0.9)
    batch = [GenerationRequest(f"t{i}", [9, 8, 7 + i], params, seed=i) for i in range(3)]
    engine.submit(batch)
    results = drain(engine)
    return [*played, [results[f"t{i}"].token_ids for i in range(3)]], engine


@pytest.mark.parametrize("model_type", FAMILIES)
def test_graphs_sample_what_the_cpu_samples(tokenizer: Any, model_type: str) -> None:
    """Greedy, sampled and truncated, over several turns. What is captured neither waits, nor
    copies from the CPU, nor has a shape that depends on numbers: the simulated GPU refuses that."""
    model = family_model(model_type)
    expected, _ = games(model, tokenizer)
    with SimGPU() as gpu:
        played, _ = games(copy.deepcopy(model).to("cuda"), tokenizer)
        assert played == expected
        assert not gpu.faults
        assert gpu.launches["graph"] > 20


def test_a_model_that_waits_for_the_device_runs_without_graphs_and_says_so_once(
    tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = build_model()
    expected, _ = games(model, tokenizer)
    with caplog.at_level(logging.WARNING), SimGPU() as gpu:
        model = copy.deepcopy(model).to("cuda")
        model.model.norm.register_forward_hook(
            lambda module, given, made: made * float(made.norm() > 0)
        )
        played, _ = games(model, tokenizer)
        assert played == expected
        assert gpu.launches["graph"] == 0
        assert all("in a capture" in what for what, _ in gpu.faults)
    said = [r.message for r in caplog.records if "without CUDA graphs" in r.message]
    assert len(said) == 1 and "LlamaForCausalLM" in said[0] and "capturing" in said[0]


def test_a_pass_is_one_upload_one_launch_and_one_download(tokenizer: Any) -> None:
    model = build_model()
    with SimGPU() as gpu:
        engine = EmbeddedEngine(model.to("cuda"), tokenizer, stop_token_ids=[], capacity=8)
        totals = []
        for number in (3, 4):
            engine.release([f"s{i}" for i in range(8)])
            gpu.reset()
            ask(engine, requests(8, tokens=number))
            totals.append(
                [c.total() for c in (gpu.launches, gpu.syncs, gpu.uploads, gpu.downloads)]
            )
        assert [b - a for a, b in zip(*totals, strict=True)] == [1, 1, 1, 1]


def test_observations_are_read_by_graphs_and_new_weights_are_captured_anew(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    run = Graphs.run

    def counted(self: Graphs, table: Any, memory: Any, plan: Any) -> Any:
        sampled = run(self, table, memory, plan)
        if sampled is not None:
            ran.append(int(plan.chunks.max()))
        return sampled

    monkeypatch.setattr(Graphs, "run", counted)
    with SimGPU():
        model = build_model().to("cuda")
        engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[], capacity=4)
        params = SamplingParams(max_tokens=3)
        first = ask(engine, [GenerationRequest("s", [5] * 40, params)])["s"].token_ids
        longer = [*[5] * 40, *first, *[6] * 10]
        ask(engine, [GenerationRequest("s", longer, params)])
        assert ran == [1, 1, 11, 1, 1]
        engine.reset()
        again = ask(engine, [GenerationRequest("s", [5] * 40, params)])["s"].token_ids
        assert again == first


def test_nan_in_a_graph_ends_its_session_alone(tokenizer: Any) -> None:
    """What a row reads less than others of its pass is padding, and NaN where the row is."""
    model = build_model()
    model.model.embed_tokens.weight.data[95] = torch.nan
    with SimGPU() as gpu:
        engine = EmbeddedEngine(model.to("cuda"), tokenizer, stop_token_ids=[], capacity=2)
        params = SamplingParams(max_tokens=2)
        first = {"bad": [5] * 20, "good": [6] * 20}
        batch = [GenerationRequest(name, ids, params) for name, ids in first.items()]
        played = {name: result.token_ids for name, result in ask(engine, batch).items()}
        turn = {"bad": [95], "good": [7] * 8}
        batch = [
            GenerationRequest(name, [*first[name], *played[name], *ids], params)
            for name, ids in turn.items()
        ]
        graphs = gpu.launches["graph"]
        results = ask(engine, batch)
        assert gpu.launches["graph"] == graphs + 2
        assert "not finite" in str(results["bad"].error)
        assert results["good"].error is None
        engine.reset()
        again = ask(engine, batch[1:])
        assert again["good"].token_ids == results["good"].token_ids
