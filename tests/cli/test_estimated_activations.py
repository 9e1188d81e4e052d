"""The estimate's activations are what real blocks save for their backward passes."""

import dataclasses
import itertools
from typing import Any

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model

from agentsgym.runs.architecture import Architecture
from agentsgym.runs.memory import Workload, memory_of

SMALL = Architecture(2, 128, 4, 2, 24, 320, 300, tied=True)
QWEN = dataclasses.replace(SMALL, qk_norm=True, kind="qwen3")
ROWS, LENGTH = 2, 200


def load_of(model: Architecture, *, half: bool, lora: bool, checkpointing: bool) -> Workload:
    adapter = model.lora_weights(1, "all-linear") if lora else 0
    return Workload(
        model=model,
        trained=adapter or model.parameters,
        adapter=adapter,
        base_bytes=2 if half and lora else 4,
        half=half,
        moments=2,
        differentiated=model.layers,
        reference=False,
        checkpointing=checkpointing,
        forward_tokens=ROWS * LENGTH,
        row_tokens=LENGTH,
        agent_tokens=ROWS * LENGTH,
        several=True,
        rows=0,
        cache_tokens=0,
        products=0,
    )


def real_model(load: Workload) -> Any:
    """A random model, with an adapter and checkpointing as a run sets them up."""
    shape = load.model
    sizes = {
        "vocab_size": shape.vocabulary, "hidden_size": shape.width,
        "intermediate_size": shape.mlp, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim, "max_position_embeddings": LENGTH,
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(shape.kind, **sizes)
    dtype = torch.bfloat16 if load.base_bytes == 2 else torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    if load.adapter:
        adapter = LoraConfig(r=1, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, adapter)
    if load.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model.train()


def bytes_saved(load: Workload) -> int:
    """What a forward pass through the blocks keeps, the weights themselves aside."""
    model = real_model(load)
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.zeros(ROWS, LENGTH, dtype=torch.long)
    seen = torch.ones_like(ids)
    seen[0, :10] = 0  # padding, as in a real chunk
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=load.half),
    ):
        model.get_decoder()(ids, attention_mask=seen)
    return sum(
        tensor.untyped_storage().nbytes() for at, tensor in kept.items() if at not in weights
    )


@pytest.mark.parametrize("shape", [SMALL, QWEN], ids=["llama", "qwen3"])
@pytest.mark.parametrize(
    ("half", "lora", "checkpointing"),
    list(itertools.product([False, True], repeat=3)),
    ids=lambda on: str(on).lower(),
)
def test_one_more_block_takes_what_it_saves(shape, half, lora, checkpointing):
    few, more = (
        load_of(
            dataclasses.replace(shape, layers=layers),
            half=half, lora=lora, checkpointing=checkpointing,
        )
        for layers in (2, 3)
    )  # fmt: skip
    saved = bytes_saved(more) - bytes_saved(few)
    counted = memory_of(more).activations - memory_of(few).activations
    assert counted == pytest.approx(saved, rel=0.02)


def test_autocast_with_checkpointing_holds_all_weights_at_the_end_of_the_forward_pass_only():
    deep = dataclasses.replace(SMALL, layers=20)
    long = load_of(deep, half=True, lora=False, checkpointing=True)
    short = dataclasses.replace(long, forward_tokens=1, row_tokens=1)
    assert memory_of(short).activations == pytest.approx(2 * deep.linear, rel=0.02)
