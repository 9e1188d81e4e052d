"""The embedded engine on a simulated GPU: what a CPU samples, and how often it waits there."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from generation_helpers import ask, build_model, play, requests

from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.embedded import forward, kv_cache
from agentsgym.generation.embedded.attention import AttentionGroup, LayerAttention
from family_models import CHANGES, family_model
from simgpu import SimGPU

PLAIN = {"qwen3_next", "qwen3_5_text", "granitemoehybrid", "lfm2", "falcon_h1", "deepseek_v3"}
PLAIN |= {"gemma4_text"}
"""Families that the embedded engine does not read."""
QUICK = {"llama", "gemma3_text", "gpt_oss", "qwen3_moe"}
FAMILIES = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name in sorted(CHANGES.keys() - PLAIN)
]


def sampled(model: Any, tokenizer: Any) -> tuple[Any, list[float], Any]:
    """Ids and log-probabilities of greedy and of sampled games, and the engine."""
    engine = EmbeddedEngine(model, tokenizer, capacity=2)
    logprobs: list[float] = []
    ids = [
        play(engine, 3, 2, temperature=temperature, longest=4, prompt=prompt,
             check=lambda context, result: logprobs.extend(result.logprobs))
        for temperature, prompt in ((0.0, ()), (0.7, range(2, 22)))
    ]  # fmt: skip
    return ids, logprobs, engine


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_family_samples_as_on_the_cpu(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    """Greedy and sampled games of two turns with a common beginning, more than there is room for at
    once; the memory grows."""
    monkeypatch.setattr(forward, "FAMILY_PAYS_FROM", 1)
    monkeypatch.setattr(kv_cache, "_LEAST_PREFIX", 8)
    model = family_model(model_type)
    here, expected, _ = sampled(model, tokenizer)
    with SimGPU() as gpu:
        there, logprobs, engine = sampled(copy.deepcopy(model).to("cuda"), tokenizer)
        assert there == here
        assert logprobs == pytest.approx(expected, abs=1e-5)
        assert engine.stats.extra["evictions"] and engine.stats.extra["shared_prefix_tokens"]
        assert not gpu.faults


def test_a_decode_pass_launches_and_waits_as_on_an_h100(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Llama of 24 layers in bfloat16 and 64 sessions: an H100 counted 975 launches a pass, and in
    whole games 6.4 to 7.2 synchronizations, of which passes that only decode have five. That was
    without graphs and blocks."""
    monkeypatch.setattr(kv_cache.CacheManager, "_lay_out", lambda *args, **options: None)
    model = build_model(num_hidden_layers=24).bfloat16()
    with SimGPU() as gpu:
        engine = EmbeddedEngine(model.to("cuda"), tokenizer, stop_token_ids=[], capacity=64)
        totals = []
        for number in (2, 3):
            engine.release([f"s{i}" for i in range(64)])
            gpu.reset()
            ask(engine, requests(64, tokens=number))
            totals.append((gpu.launches.total(), gpu.syncs.total(), gpu.uploads.total()))
        launches, syncs, uploads = np.array(totals[1]) - totals[0]
        assert launches == pytest.approx(975, rel=0.05)
        assert syncs <= 5 and uploads <= 3
        assert not gpu.faults


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
