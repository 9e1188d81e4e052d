"""`muon`: the weights of linear layers are trained by Muon, everything else by AdamW."""

import copy
import math

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from agentsgym.training.muon import matrices_of

OPTIONS = {"muon": True, "learning_rate": 1e-3, "max_steps": 1, "lr_scheduler_type": "constant",
           "weight_decay": 0.0, "advantage_estimator": "rloo"}  # fmt: skip


def is_matrix(name):
    return "proj" in name


def test_the_matrices_of_a_model(tiny_llama):
    """Neither embeddings nor head, which may be tied, nor norms."""
    names = {id(p): name for name, p in tiny_llama.named_parameters()}
    chosen = {names[id(p)] for p in matrices_of(tiny_llama)}
    assert chosen == {name for name in names.values() if is_matrix(name)} and len(chosen) == 14
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=20, n_positions=9))
    shapes = sorted(tuple(p.shape) for p in matrices_of(gpt2))
    assert shapes == [(8, 8), (8, 24), (8, 32), (32, 8)]


def test_the_first_step(make_trainer, tiny_llama):
    """Of a matrix it is along the gradient's singular vectors, all alike long: 0.2·√(longer side)
    times the learning rate, up to the Newton-Schulz iteration's 0.5 to 1.5. AdamW's is the learning
    rate along the gradient's signs."""
    trainer = make_trainer(**OPTIONS)
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    gradients = {}

    def keep(*_, **__):
        gradients.update((n, p.grad.clone()) for n, p in trainer.model.named_parameters())

    trainer.callback_handler.callbacks[-1].on_pre_optimizer_step = keep
    trainer.train()
    assert gradients
    for name, parameter in trainer.model.named_parameters():
        step, gradient = parameter.detach() - before[name], gradients[name]
        if not is_matrix(name):
            clear = gradient.abs() > 1e-5
            assert torch.allclose(step[clear], -1e-3 * gradient[clear].sign(), rtol=1e-2)
            continue
        left, sizes, right = torch.linalg.svd(gradient, full_matrices=False)
        along = -torch.einsum("ak,ab,kb->k", left, step, right)
        length = along / (1e-3 * 0.2 * math.sqrt(max(gradient.shape)))
        strong = sizes > 0.1 * sizes[0]
        assert ((length[strong] > 0.5) & (length[strong] < 1.5)).all(), (name, length)


def test_a_resumed_run_is_the_undisturbed_one(make_trainer, tiny_llama, tmp_path):
    options = OPTIONS | {
        "max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2,
        "lr_scheduler_type": "linear", "weight_decay": 0.1,
    }  # fmt: skip

    def run(resume=None):
        trainer = make_trainer(model=copy.deepcopy(tiny_llama), **options)
        trainer.train(resume_from_checkpoint=resume)
        return [p.detach().clone() for p in trainer.model.parameters()]

    whole = run()
    resumed = run(str(tmp_path / "out" / "checkpoint-2"))
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


def test_where_it_is_refused(make_trainer, tiny_llama, monkeypatch):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    with pytest.raises(ValueError, match="adapter"):
        make_trainer(model=copy.deepcopy(tiny_llama), peft_config=lora, **OPTIONS)
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ValueError, match=r"torch .* does not have it"):
        make_trainer(**OPTIONS)
