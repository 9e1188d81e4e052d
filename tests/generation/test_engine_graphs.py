"""The embedded engine with its CUDA graphs on a simulated GPU."""

import copy
import gc
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from generation_helpers import ask, build_model, drain, play, requests
from peft import LoraConfig, get_peft_model

from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.embedded import kv_cache
from agentsgym.generation.embedded.attention import AttentionGroup, LayerAttention
from agentsgym.generation.embedded.graphs import Graph, Graphs
from agentsgym.types import GenerationRequest, SamplingParams, WeightUpdate
from family_models import CHANGES, family_model
from simgpu import SimGPU  # first: autograd counts devices at the first backward pass

PLAIN = {"qwen3_next", "qwen3_5_text", "granitemoehybrid", "lfm2", "falcon_h1", "deepseek_v3"}
PLAIN |= {"gemma4_text"}
QUICK = {"llama", "gemma3_text", "gpt_oss"}
FAMILIES = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name in sorted(CHANGES.keys() - PLAIN)
]


def games(model: Any, tokenizer: Any) -> tuple[list[Any], list[float]]:
    """Ids and log-probabilities of greedy, sampled and truncated games of several turns, more than
    there is room for at once; the memory grows."""
    engine = EmbeddedEngine(model, tokenizer, capacity=2)
    said: list[tuple[list[int], Any]] = []
    played: list[Any] = [
        play(engine, 3, 2, temperature=temperature, longest=4, prompt=prompt,
             check=lambda context, result: said.append((context, result.logprobs)))
        for temperature, prompt in ((0.0, range(2, 42)), (0.7, ()))
    ]  # fmt: skip
    assert engine.stats.extra["evictions"] and engine.stats.extra["shared_prefix_tokens"]
    params = SamplingParams(max_tokens=6, top_k=7, top_p=0.9)
    batch = [GenerationRequest(f"t{i}", [9, 8, 7 + i], params, seed=i) for i in range(3)]
    engine.submit(batch)
    results = drain(engine)
    played.append([results[f"t{i}"].token_ids for i in range(3)])
    return played, [logprob for _, own in sorted(said) for logprob in own]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_graphs_sample_what_the_cpu_samples(tokenizer: Any, model_type: str) -> None:
    """What is captured neither waits, nor copies from the CPU, nor has a shape that depends on
    numbers: the simulated GPU refuses that."""
    model = family_model(model_type)
    expected, here = games(model, tokenizer)
    with SimGPU() as gpu:
        played, there = games(copy.deepcopy(model).to("cuda"), tokenizer)
        assert played == expected and there == pytest.approx(here, abs=1e-5)
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
        for number in (3, 3, 3, 4):  # the first reads without graphs, the second captures
            engine.release([f"s{i}" for i in range(8)])
            gpu.reset()
            ask(engine, requests(8, tokens=number))
            totals.append(
                [c.total() for c in (gpu.launches, gpu.syncs, gpu.uploads, gpu.downloads)]
            )
        assert [b - a for a, b in zip(*totals[2:], strict=True)] == [1, 1, 1, 1]


def test_observations_are_read_by_graphs(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    run = Graphs.run

    def counted(self: Graphs, table: Any, memory: Any, plan: Any, **how: Any) -> Any:
        sampled = run(self, table, memory, plan, **how)
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


# -- weights that change ---------------------------------------------------------------------------


def learned(model: Any, seed: int) -> None:
    """An update in place, as an optimizer makes it; the noise is a CPU's."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape).to(weight.device), alpha=0.05)


def generations(
    model: Any, tokenizer: Any, between: Callable[[Any, int], None], **options: Any
) -> tuple[list[Any], list[int], EmbeddedEngine]:
    """Games of two generations, the number of graphs that were captured until the end of each,
    and the engine."""
    engine = EmbeddedEngine(model, tokenizer, capacity=3, **options)
    played, captures = [], []
    for number in range(2):
        if number:
            between(model, number)
            engine.update_weights(WeightUpdate(model, number, Path()))
        played.append(play(engine, 3, 2, longest=5, prompt=range(2, 42)))
        engine.release([f"s{i}" for i in range(3)])
        captures.append(CAPTURED.total)
    return played, captures, engine


class CAPTURED:
    """How often a graph was captured."""

    total = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    CAPTURED.total, capture = 0, Graph._capture

    def count(self: Graph, *place: Any) -> None:
        CAPTURED.total += 1
        capture(self, *place)

    monkeypatch.setattr(Graph, "_capture", count)


def adapted(model: Any) -> Any:
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, config)
    learned(model, 100)
    return model


@pytest.mark.parametrize("kind", ["weights", "copy in bfloat16", "adapter"])
def test_graphs_outlive_updates_in_place(tokenizer: Any, counted: None, kind: str) -> None:
    """Games are those of the CPU after each update; what was captured once is not captured again,
    also though all sessions end with each generation."""
    options = {"dtype": torch.bfloat16} if "copy" in kind else {}
    model = adapted(build_model()) if kind == "adapter" else build_model()
    there = copy.deepcopy(model)
    expected, _, _ = generations(model, tokenizer, learned, **options)
    assert expected[0] != expected[1]
    with SimGPU() as gpu:
        there = there.to("cuda")
        held = gpu.live
        played, captures, engine = generations(there, tokenizer, learned, **options)
        assert played == expected and not gpu.faults
        graphs = engine._graphs._graphs
        assert captures[0] > 3 and captures[-1] == len(graphs) < 2 * captures[0]
        graphs = None
        engine.close()
        del engine
        gc.collect()
        assert gpu.live <= held


def moved(model: Any, number: int) -> None:
    learned(model, number)
    for weight in model.parameters():
        weight.data = weight.data.clone()


def merged(model: Any, number: int) -> None:
    """An adapter is merged into its base in place."""
    learned(model, number)
    model.merge_adapter()


@pytest.mark.parametrize("between", [moved, merged])
def test_graphs_are_captured_anew_where_weights_are_others(
    tokenizer: Any, counted: None, between: Any
) -> None:
    model = adapted(build_model()) if between is merged else build_model()
    there = copy.deepcopy(model)
    expected, _, _ = generations(model, tokenizer, between)
    with SimGPU() as gpu:
        played, captures, _ = generations(there.to("cuda"), tokenizer, between)
        assert played == expected and not gpu.faults
    assert captures[1] > captures[0] + 3


def test_much_memory_is_given_back_when_no_session_is_left(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An eighth of the budget may stay, graphs included."""
    monkeypatch.setattr(kv_cache, "_STEP", 0)
    with SimGPU() as gpu:
        model = build_model().to("cuda")
        for gib, stays in ((0.1, True), (0.0003, False)):
            engine = EmbeddedEngine(model, tokenizer, capacity=4, cache_gib=gib)
            before = gpu.live
            ask(engine, requests(4, tokens=20))
            engine.release([f"s{i}" for i in range(4)])
            assert bool(engine._caches.memory.planes) == bool(engine._graphs._graphs) == stays
            ask(engine, requests(4, tokens=20))
            engine.close()
            gc.collect()
            assert gpu.live == before


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


@pytest.mark.parametrize("width", [16, 300])
def test_keys_that_query_heads_share_are_not_copied(width: int) -> None:
    """Two sessions read after 4,000 tokens, with eight query heads for each of two key heads of 64
    numbers: eight copies of keys and values would take 62.7 MiB."""
    with SimGPU() as gpu:
        device = torch.device("cuda", 0)
        rows, starts, chunks = np.arange(2), np.full(2, 4000), np.full(2, width)
        group = AttentionGroup(rows, starts, chunks, 0, 5000, device)
        keys, values = (torch.zeros(2, 2, 5000, 64, device=device) for _ in range(2))
        queries = torch.zeros(2 * width, 16, 64, device=device)
        gpu.reset()
        before = gpu.live
        group.attend(queries, keys, values, LayerAttention())
        assert gpu.peak - before < 16 * 2**20
