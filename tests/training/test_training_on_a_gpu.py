"""A training step on a simulated GPU: the gradient of a CPU, and how often it waits there."""

import copy
import math

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
        assert launches <= (750 if kind == "checkpointing" else 600)
        assert syncs <= 27 and uploads <= 17
    tolerance = 0.02 if kind == "bfloat16" else 1e-5
    assert on_gpu[0] == pytest.approx(loss, abs=tolerance)
    assert float((on_gpu[1] - gradient).abs().max()) < tolerance * float(gradient.abs().max())
