"""An engine that samples from a copy in bfloat16 gives what a bfloat16 model gives."""

from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from generation_helpers import assert_exact, build_model, play

from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.embedded.precision import ModelCopy, exactly, resolve_dtype
from agentsgym.types import WeightUpdate

BF16 = torch.bfloat16


@pytest.fixture
def trained() -> Any:
    """A float32 model that no other test changes."""
    return build_model("llama", initializer_range=0.1)


def test_samples_are_those_of_the_model_in_bfloat16(trained: Any, tokenizer: Any) -> None:
    engine = EmbeddedEngine(trained, tokenizer, dtype=BF16)
    plain = build_model("llama", initializer_range=0.1).bfloat16()
    sampled = play(engine, 5, 3, check=partial(assert_exact, plain, tolerance=0.05))
    assert sampled == play(EmbeddedEngine(plain, tokenizer), 5, 3)
    assert {weight.dtype for weight in trained.parameters()} == {torch.float32}


def test_new_weights_are_sampled_after_an_update_and_not_before(
    trained: Any, tokenizer: Any
) -> None:
    engine = EmbeddedEngine(trained, tokenizer, dtype=BF16)
    before = play(engine, 3, 2)
    with torch.no_grad():
        for weight in trained.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    assert play(engine, 3, 2) == before
    engine.update_weights(WeightUpdate(trained, 1, Path(), changed=False))
    assert play(engine, 3, 2) == before
    engine.update_weights(WeightUpdate(trained, 2, Path()))
    assert play(engine, 3, 2) == play(EmbeddedEngine(trained.bfloat16(), tokenizer), 3, 2) != before


def test_forward_passes_that_a_trainer_replaced_are_not_copied(
    trained: Any, tokenizer: Any
) -> None:
    """TRL and accelerate set `forward` on the object; theirs would run the float32 model."""

    def refuse(self: Any, *args: Any, **options: Any) -> None:
        raise AssertionError("the trainer's forward pass was called")

    trained.forward = MethodType(refuse, trained)
    play(EmbeddedEngine(trained, tokenizer, dtype=BF16), 2, 2)


def test_passes_in_float32_cast_a_weight_for_the_operator_that_reads_it(trained: Any) -> None:
    ids = torch.tensor([[3, 4, 5]])
    model = trained.bfloat16()
    with torch.no_grad(), exactly(model, ids.device):
        assert model.lm_head.weight.dtype == torch.float32  # and of weights nothing else is said
        exact = model(input_ids=ids).logits
        with torch.autocast("cpu", BF16):
            torch.testing.assert_close(model(input_ids=ids).logits, exact)
    assert model.lm_head.weight.dtype == BF16
    with torch.no_grad():
        rounded = model(input_ids=ids).logits
        torch.testing.assert_close(model.float()(input_ids=ids).logits, exact)
    assert not torch.equal(rounded.float(), exact)


def test_tied_weights_stay_tied_and_weights_in_few_bits_are_shared() -> None:
    model = build_model("llama", tie_word_embeddings=True)
    model.model.layers[0].bfloat16()
    copied = ModelCopy(model, BF16).model
    assert copied.lm_head.weight is copied.model.embed_tokens.weight
    assert copied.lm_head.weight.dtype == BF16
    frozen, shared = model.model.layers[0].parameters(), copied.model.layers[0].parameters()
    assert all(ours is weight for weight, ours in zip(frozen, shared, strict=True))
    assert copied.model.rotary_emb.inv_freq.dtype == torch.float32


def test_an_adapter_is_sampled_with_its_base(trained: Any, tokenizer: Any) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(trained, config)
    engine = EmbeddedEngine(adapted, tokenizer, dtype=BF16)
    base = play(engine, 3, 2)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_()
    engine.update_weights(WeightUpdate(adapted, 1, Path()))
    changed = play(engine, 3, 2)
    assert changed != base
    assert changed == play(EmbeddedEngine(adapted.bfloat16(), tokenizer), 3, 2)


@pytest.mark.parametrize(
    ("avx", "amx", "expected"),
    [(True, False, BF16), (False, True, BF16), (False, False, torch.float32)],
)
def test_auto_is_bfloat16_on_a_cpu_that_multiplies_it(monkeypatch, avx, amx, expected):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert resolve_dtype("auto", "cpu") == expected


def test_float16_is_for_gpus_and_what_is_unknown_is_refused():
    assert resolve_dtype("float16", "cuda") == torch.float16
    for name, words in (("float16", "needs a GPU"), ("fp8", "one of auto, float32")):
        with pytest.raises(ValueError, match=words):
            resolve_dtype(name, "cpu")
