"""Whatever is done to the engine in whatever order: nothing is lost and all is exact."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from generation_helpers import VOCABULARY, assert_exact, play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsgym.generation.embedded import forward, kv_cache
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.types import GenerationRequest, SamplingParams

NAMES = [f"s{i}" for i in range(7)]
PROMPTS = [[7 + i] * 4 + list(range(10, 30 + i)) for i in range(3)]


class Storm:
    """Random submissions, releases and resets, and what should come back."""

    def __init__(self, engine: EmbeddedEngine, model: Any, seed: int) -> None:
        self.engine, self.model, self.rng = engine, model, random.Random(seed)
        self.open: dict[str, list[int]] = {}
        self.history: dict[str, list[int]] = {}

    def run(self, steps: int) -> None:
        actions = [self.submit, self.submit, self.poll, self.poll, self.poll]
        actions += [self.release, self.engine.reset]
        for _ in range(steps):
            self.rng.choice(actions)()
        while self.open:
            self.poll()
        assert self.engine.poll() == []

    def submit(self) -> None:
        idle = [name for name in NAMES if name not in self.open]
        chosen = self.rng.sample(idle, self.rng.randint(0, len(idle)))
        self.engine.submit([self._request(name) for name in chosen])

    def poll(self) -> None:
        for result in self.engine.poll():
            context = self.open.pop(result.session_id)
            assert_exact(self.model, context, result)
            self.history[result.session_id] = [*context, *result.token_ids, *self._observed()]

    def release(self) -> None:
        for name in self.rng.sample(NAMES, self.rng.choice([1, 1, 2, 7])):
            self.engine.release([name])
            self.open.pop(name, None)
            self.history.pop(name, None)

    def _request(self, name: str) -> GenerationRequest:
        context = self.history.get(name, self.rng.choice(PROMPTS))
        if len(context) > 60 or self.rng.random() < 0.1:
            context = context[: self.rng.randint(1, 9)] + list(self._observed())
        self.open[name] = context
        params = SamplingParams(max_tokens=self.rng.randint(1, 9))
        return GenerationRequest(name, context, params, seed=self.rng.randrange(99))

    def _observed(self) -> Iterator[int]:
        return (self.rng.randrange(2, VOCABULARY) for _ in range(self.rng.randint(0, 9)))


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 10_000),
    capacity=st.integers(1, 8),
    prefill=st.sampled_from([1, 3, 10, 2048]),
)
def test_storm(model: Any, tokenizer: Any, seed: int, capacity: int, prefill: int) -> None:
    engine = EmbeddedEngine(model, tokenizer, capacity=capacity)
    engine.max_prefill_tokens = prefill
    Storm(engine, model, seed).run(steps=40)


@pytest.fixture
def every_family(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Any two rows that begin alike decode together; how many there were each time."""
    sizes = []

    class Counted(forward.FamilyGroup):
        def __init__(self, rows: Any, *rest: Any) -> None:
            sizes.append(len(rows))
            super().__init__(rows, *rest)

    monkeypatch.setattr(forward, "FamilyGroup", Counted)
    monkeypatch.setattr(forward, "FAMILY_PAYS_FROM", 1)
    monkeypatch.setattr(kv_cache, "_LEAST_PREFIX", 8)
    return sizes


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_a_common_prompt_is_read_once_while_decoding(
    models: Any, tokenizer: Any, every_family: list[int], kind: str
) -> None:
    """Sessions leave their family where their history is rewritten, and their rows get others."""
    model = models(kind)
    engine = EmbeddedEngine(model, tokenizer, capacity=6)
    check = partial(assert_exact, model, temperature=0.7)
    play(
        engine,
        sessions=9,
        turns=5,
        temperature=0.7,
        rewrite_at=3,
        check=check,
        prompt=range(2, 32),
    )
    assert max(every_family) > 3


def test_two_prompts_are_two_families(model: Any, tokenizer: Any, every_family: list[int]) -> None:
    engine = EmbeddedEngine(model, tokenizer)
    prompts = [list(range(2, 22)), list(range(30, 60))]
    batch = [
        GenerationRequest(f"s{i}", [*prompts[i % 2], 70 + i], SamplingParams(max_tokens=5), seed=i)
        for i in range(6)
    ]
    engine.submit(batch)
    results = {}
    while len(results) < 6:
        results |= {result.session_id: result for result in engine.poll()}
    for request in batch:
        assert_exact(model, request.token_ids, results[request.session_id])
    assert max(every_family) == 3


def test_companions_do_not_matter(model: Any, tokenizer: Any) -> None:
    together = play(EmbeddedEngine(model, tokenizer), sessions=8, turns=4)
    squeezed = play(EmbeddedEngine(model, tokenizer, capacity=2), sessions=8, turns=4)
    fewer = play(EmbeddedEngine(model, tokenizer), sessions=3, turns=4)
    assert together == squeezed
    assert fewer == {name: together[name] for name in fewer}
