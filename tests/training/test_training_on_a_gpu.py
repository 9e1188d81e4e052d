"""A training step on a simulated GPU: the gradient of a CPU, and how often it waits there."""

import copy
import math
import re

import pytest
import torch
from peft import LoraConfig, get_peft_model

from agentsgym.training.loss import forest
from simgpu import SimGPU
from training.cells import Cell

KINDS = {
    "float32": {},
    "padded": {"pays_from": math.inf},
    "bfloat16": {"bf16": True},
    "lora": {},
    "checkpointing": {"gradient_checkpointing": True},
}


def adapted(model):
    """With an adapter whose products are not 0."""
    model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def step(make_trainer, model, rollouts, gpu=None, **options):
    """Loss and gradient of a micro-batch; the second of two on a GPU is what it counts."""
    trainer = make_trainer(model=model, train_on="steps", use_cpu=gpu is None, **options)
    trainer.weigh_rollouts([rollouts])
    model.train()
    if options.get("gradient_checkpointing"):
        model.gradient_checkpointing_enable()
    for _ in range(1 if gpu is None else 2):
        model.zero_grad()
        if gpu is not None:
            gpu.reset()
        loss = trainer.train_micro_batch(trainer.model, rollouts)
    counts = gpu and (gpu.launches.total(), gpu.syncs.total(), gpu.uploads.total())
    gradient = [p.grad.cpu().flatten() for p in model.parameters() if p.grad is not None]
    return float(loss), torch.cat(gradient), counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_micro_batch_has_the_gradient_of_the_cpu(make_trainer, tiny_llama, monkeypatch, kind):
    options = {"bf16": False} | KINDS[kind]
    monkeypatch.setattr(forest, "PAYS_FROM", options.pop("pays_from", 0.0))
    rollouts = Cell(tiny_llama, train_on="steps", off_policy=False).for_trainer()["rollouts"]
    model = adapted(tiny_llama) if kind == "lora" else tiny_llama
    there = copy.deepcopy(model)
    loss, gradient, _ = step(make_trainer, model, rollouts, **options)
    with SimGPU() as gpu:
        on_gpu = step(make_trainer, there, rollouts, gpu, **options)
        assert not gpu.faults
        launches, syncs, uploads = on_gpu[2]
        assert launches <= (480 if kind in ("float32", "padded") else 560)
        assert syncs <= 9 and uploads <= 8
    tolerance = 0.02 if kind == "bfloat16" else 1e-5
    assert on_gpu[0] == pytest.approx(loss, abs=tolerance)
    assert float((on_gpu[1] - gradient).abs().max()) < tolerance * float(gradient.abs().max())


def test_an_update_without_memory_is_made_again_in_smaller_passes(
    make_trainer, tiny_llama, monkeypatch, caplog
):
    """The second of two micro-batches finds no memory in its backward pass: the gradient is that of
    both, and the next update has what it needs."""
    monkeypatch.setattr(forest, "PAYS_FROM", 0.0)
    cell = Cell(tiny_llama, 16, train_on="steps", off_policy=False)
    halves = [cell.for_trainer()["rollouts"][part] for part in (slice(0, 8), slice(8, 16))]
    options = {"bf16": False, "train_on": "steps", "gradient_accumulation_steps": 2}

    def learn(model, limit=None, **more):
        trainer = make_trainer(model=model, **options, **more)
        trainer.weigh_rollouts(halves)
        model.train()
        trainer.train_micro_batch(trainer.model, halves[0])
        if limit is not None:
            gpu.reset()
            trainer.train_micro_batch(trainer.model, halves[1])
            gpu.limit = limit * (gpu.peak - gpu.live) + gpu.live
            model.zero_grad()
            trainer.update._micro_batches.clear()
            trainer.train_micro_batch(trainer.model, halves[0])
        trainer.train_micro_batch(trainer.model, halves[1])
        return torch.cat([p.grad.cpu().flatten() for p in model.parameters()])

    there = copy.deepcopy(tiny_llama)
    expected = learn(tiny_llama)
    with SimGPU() as gpu:
        gradient = learn(there, 0.8, use_cpu=False)
        (said,) = re.findall(r"a pass reads at most (\d+) tokens from now on", caplog.text)
        # It was one pass, far below the limit of 16,384 tokens.
        assert 2 * int(said) <= sum(row.length for one in halves[1] for row in one.rows)
        assert not gpu.faults
    assert float((gradient - expected).abs().max()) < 1e-5 * float(expected.abs().max())
