"""The memory of keys and values: its blocks, its budget, and who waits for it or is refused."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from generation_helpers import VOCABULARY, assert_exact, build_model, drain, paged, play
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym.generation.embedded import kv_cache
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.embedded.kv_cache import BLOCK, CacheManager, KVMemory
from agentsgym.types import GenerationRequest, SamplingParams

TOKEN_BYTES = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, numbers, bytes of a number
ROWS, LENGTH = 4, 5 * BLOCK

actions = st.lists(
    st.tuples(st.integers(0, ROWS - 1), st.integers(0, LENGTH), st.booleans()), max_size=40
)


def gib(blocks: int) -> float:
    return blocks * BLOCK * TOKEN_BYTES / 2**30


def tight(model: Any, tokenizer: Any, blocks: int, capacity: int = 64) -> EmbeddedEngine:
    """An engine that may hold so many blocks, and so has rows of blocks from the first session."""
    return EmbeddedEngine(model, tokenizer, capacity=capacity, cache_gib=gib(blocks))


@settings(max_examples=60, deadline=None)
@given(actions=actions)
def test_blocks_against_a_naive_list(actions: list[tuple[int, int, bool]]) -> None:
    """Each row keeps what was written to it, and no block is two rows' or lost."""
    memory = KVMemory(1, paged=True, most=ROWS * LENGTH // BLOCK)
    memory.grow(ROWS, LENGTH)
    naive: list[list[float]] = [[] for _ in range(ROWS)]
    number = 0.0
    for row, tokens, grows in actions:
        held = len(naive[row])
        if grows and tokens > held:
            memory.fit(np.array([row]), np.array([tokens]))
            state = torch.zeros(1, 1, 1, 2)
            for place in range(held, tokens):
                number += 1
                naive[row].append(number)
                blocks, offsets = memory.address(np.array([row]), np.array([place]))
                memory.of_layer(0, state, state)[1][int(blocks[0]), 0, int(offsets[0])] = number
        elif not grows:
            memory.keep(row, tokens)
            naive[row] = naive[row][:tokens]
        used = memory.table[memory.table > 0].tolist()
        assert sorted(used + memory._free) == list(range(1, memory.blocks))
        assert len(used) == sum(-(-len(tokens) // BLOCK) for tokens in naive)
        for each, expected in enumerate(naive):
            blocks, offsets = memory.address(np.full(len(expected), each), np.arange(len(expected)))
            if expected:
                assert memory.planes[1][blocks, 0, offsets, 0].tolist() == expected


def test_the_budget_in_blocks() -> None:
    caches = CacheManager(2, 8, defaultdict(float), TOKEN_BYTES, gib(10))
    caches.settle(torch.device("cpu"))
    assert caches.most == 10
    assert caches.too_long(10 * BLOCK) is None
    reason = str(caches.too_long(10 * BLOCK + 1))
    assert "of 321 tokens take 7.65e-05 GiB" in reason and "320 tokens (engine.cache_gib)" in reason
    params = SamplingParams(max_tokens=BLOCK)
    for name, blocks, fits in (("a", 6, True), ("b", 5, False), ("c", 4, True), ("d", 1, False)):
        row = caches.acquire(name, blocks * BLOCK, 1)
        assert (row is not None) == fits, name
        if row is not None:
            context = np.full((blocks - 1) * BLOCK, 3)
            caches.begin(
                row, GenerationRequest(name, context.tolist(), params), context, blocks * BLOCK
            )


def test_the_budget_is_a_share_of_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "free_bytes", lambda device: 100 * BLOCK * TOKEN_BYTES)
    caches = CacheManager(2, 8, defaultdict(float), TOKEN_BYTES)
    caches.settle(torch.device("cpu"))
    assert caches.most == 80


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_rows_of_blocks_sample_the_same(
    models: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    options: dict[str, Any] = {"sessions": 9, "turns": 4, "rewrite_at": 2, "prompt": range(2, 42)}
    whole = play(EmbeddedEngine(models(kind), tokenizer, capacity=5), **options)
    engine = paged(EmbeddedEngine(models(kind), tokenizer, capacity=5), monkeypatch)
    assert play(engine, **options) == whole
    assert engine._caches.memory.paged
    assert engine.stats.extra["evictions"] and engine.stats.extra["shared_prefix_tokens"]


def test_a_session_waits_for_room_and_all_are_answered(model: Any, tokenizer: Any) -> None:
    """Two of nine sessions have room at once; the caches of idle ones make room for others."""
    free = play(EmbeddedEngine(model, tokenizer), sessions=9, turns=3, prompt=range(2, 22))
    engine = tight(model, tokenizer, blocks=6)
    assert play(engine, sessions=9, turns=3, prompt=range(2, 22)) == free
    assert engine._caches.memory.paged
    assert engine._caches.memory.blocks <= 1 + 6
    assert engine.stats.extra["evictions"] > 0


def test_one_long_session_among_short_ones(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """63 sessions of 100 tokens and one of 4,000 hold at most 1.3 times what they use, and give it
    back when the long one ends."""
    model = build_model(max_position_embeddings=4096)
    engine = paged(EmbeddedEngine(model, tokenizer, stop_token_ids=[]), monkeypatch)
    lengths = {f"s{i}": 4000 if i == 0 else 100 for i in range(64)}
    params = SamplingParams(max_tokens=2)
    engine.submit(
        [
            GenerationRequest(name, [(i * 7 + k) % VOCABULARY for k in range(size - 1)], params)
            for i, (name, size) in enumerate(lengths.items())
        ]
    )
    drain(engine)
    used = sum(lengths.values()) * TOKEN_BYTES
    assert used < held(engine) <= 1.3 * used
    engine.release(["s0"])
    assert held(engine) <= 1.5 * (used - 4000 * TOKEN_BYTES)


def held(engine: EmbeddedEngine) -> int:
    return sum(plane.nbytes for plane in engine._caches.memory.planes)


@pytest.mark.parametrize("in_blocks", [False, True])
def test_running_out_of_memory_in_a_growth_loses_nothing(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, in_blocks: bool
) -> None:
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[])
    engine = paged(engine, monkeypatch) if in_blocks else engine
    contexts = {"a": [5] * 20, "b": [6] * 300}
    engine.submit([GenerationRequest("a", contexts["a"], SamplingParams(max_tokens=60))])
    engine.interrupt()
    assert engine.poll() == []
    resize = KVMemory._resize

    def out_of_memory(self: KVMemory, *args: Any) -> None:
        planes, self.planes = self.planes, self.planes[:1]
        resize(self, *args)
        self.planes += planes[1:]
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(KVMemory, "_resize", out_of_memory)
    engine.submit([GenerationRequest("b", contexts["b"], SamplingParams(max_tokens=40))])
    with pytest.raises(torch.OutOfMemoryError):
        engine.poll()
    monkeypatch.setattr(KVMemory, "_resize", resize)
    for name, result in drain(engine).items():
        assert len(result.token_ids) == (60 if name == "a" else 40)
        assert_exact(model, contexts[name], result)


@pytest.mark.parametrize("in_blocks", [False, True])
def test_nan_in_a_session_ends_that_session_alone(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, in_blocks: bool
) -> None:
    """It reads a token without numbers, in the pass in which others copy what it has read before.
    Then another session has its place, and those that are open have kept their caches."""
    model = build_model()
    model.model.embed_tokens.weight.data[95] = torch.nan
    model.lm_head.weight.data[95] = 0.0  # so the others do not sample it
    prompt = [3, 4, 5, 6] * 11
    games = {"bad": [*prompt, 7], "a": [*prompt, 8], "b": [*prompt, 9, 10]}
    params = SamplingParams(max_tokens=4, temperature=0.0)
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[], capacity=3)
    engine = paged(engine, monkeypatch) if in_blocks else engine

    def ask(contexts: dict[str, list[int]]) -> None:
        engine.submit([GenerationRequest(name, ids, params) for name, ids in contexts.items()])
        for name, result in drain(engine).items():
            if 95 in contexts[name]:
                assert result.error == f"session {name!r}: the model's logits are not finite"
            else:
                assert_exact(model, contexts[name], result, temperature=0.0)
                games[name] = [*contexts[name], *result.token_ids]

    ask({"bad": games["bad"]})
    ask({"bad": [*games["bad"], 95, 7], "a": games["a"], "b": games["b"]})
    assert engine.stats.extra["shared_prefix_tokens"] == 2 * len(prompt)
    reused = engine.stats.extra["reused_tokens"]
    assert all(bool(plane.isfinite().all()) for plane in engine._caches.memory.planes)
    ask({"a": [*games["a"], 11], "b": [*games["b"], 12], "new": [13] * 90})
    assert engine.stats.extra["reused_tokens"] - reused == (44 + 1 + 3) + (44 + 2 + 3)
