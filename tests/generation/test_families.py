"""Every family that docs/engines.md lists: the engine that is chosen, and what it samples."""

import re
from pathlib import Path
from typing import Any

import pytest
from generation_helpers import assert_exact, play

from agentsgym.generation.embedded import forward, kv_cache
from agentsgym.generation.factory import ENGINES, make_trainable
from agentsgym.generation.settings import EngineParts, EngineSettings
from family_models import CHANGES, WINDOW, family_model

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
LISTS = re.findall(r"(?m)^- \*\*`(\w+)`\*\* samples (.+)$", PAGE.read_text(encoding="utf-8"))
FAMILIES = [(kind, name) for name, text in LISTS for kind in re.findall(r"\(`(\w+)`\)", text)]
QUICK = {"gemma3_text", "gpt_oss", "qwen3_5_text", "lfm2"}
EACH = [
    pytest.param(*family, marks=[] if family[0] in QUICK else pytest.mark.slow)
    for family in FAMILIES
]


@pytest.mark.parametrize(("model_type", "name"), EACH)
def test_the_chosen_engine_samples_what_a_full_forward_says(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, model_type: str, name: str
) -> None:
    monkeypatch.setattr(forward, "FAMILY_PAYS_FROM", 1)
    monkeypatch.setattr(kv_cache, "_LEAST_PREFIX", 8)
    model = family_model(model_type)
    parts = EngineParts(model=lambda: model, tokenizer=lambda: tokenizer)
    engine: Any = make_trainable(EngineSettings(), parts)
    assert type(engine).__name__ == ENGINES[name].path.rpartition(".")[2]
    longest = []

    def check(context: list[int], result: Any) -> None:
        longest.append(len(context))
        assert_exact(model, context, result, temperature=temperature)

    for temperature, prompt in ((0.0, ()), (0.7, range(2, 22))):
        play(
            engine,
            sessions=3,
            turns=3,
            temperature=temperature,
            longest=6,
            check=check,
            prompt=prompt,
        )
    assert max(longest) > 2 * WINDOW
    if name == "plain":
        assert engine.cached


def test_each_family_has_a_tiny_model() -> None:
    assert sorted(model_type for model_type, _ in FAMILIES) == sorted(CHANGES)
