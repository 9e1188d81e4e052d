"""Tokens that were chosen from some ids only: the loss of the policy that chose them, against the
independent reference in float64."""

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from agentsgym.training.loss import forest
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.loss.ratios import RATIO_SCOPES
from training import reference
from training.cells import Cell
from training.test_gradient_truth import distance, settings_of, window

EXACT = 1e-9


@pytest.fixture(autouse=True)
def norms_in_float64(monkeypatch):
    """Llama's own are computed in float32, where other shapes give other last bits."""

    def forward(self, hidden):
        scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (hidden * scale)

    monkeypatch.setattr(LlamaRMSNorm, "forward", forward)


def check(trainer, cell, **changes):
    loss, gradient = window(trainer)
    expected, truth = reference.gradient_of(
        trainer.model, cell.for_reference(), settings_of(trainer, **changes)
    )
    assert truth.norm() > 1e-3
    assert distance(gradient, truth) < EXACT
    assert loss == pytest.approx(expected, rel=1e-6, abs=1e-7)  # TRL sums it in float32


GRID = [(loss, [*RATIO_SCOPES][k % 3], k % 2 == 0) for k, loss in enumerate(LOSSES)]
"""Each loss, in which rows are shared or not; scopes in turn."""


@pytest.mark.parametrize("choosy", [True, "whole"], ids=["tokens", "whole"])
@pytest.mark.parametrize(("loss", "scope", "shares"), GRID)
def test_grid(make_exact, tiny_llama, monkeypatch, loss, scope, shares, choosy):
    monkeypatch.setattr(forest, "PAYS_FROM", 0.0 if shares else 1e9)
    cell = Cell(tiny_llama.double(), 8, seed=list(LOSSES).index(loss), choosy=choosy)
    trainer = make_exact(
        cell,
        loss_type=loss,
        ratio_scope=scope,
        train_on="steps" if shares else "rollout",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_iterations=2,
        max_tokens_per_forward=60,
    )
    cell.train_on = trainer.args.train_on
    check(trainer, cell)


@pytest.mark.parametrize(
    "options",
    [
        {"entropy_coef": 0.1},
        {"temperature": 0.7},
        {"beta": 0.1},
        {"beta": 0.1, "off_policy_masks": {"icepop": [0.8, 1.3]}},
    ],
    ids=str,
)
@pytest.mark.parametrize("choosy", [True, "whole"], ids=["tokens", "whole"])
def test_other_terms(make_exact, tiny_llama, options, choosy):
    options = dict(options)
    beta = options.pop("beta", 0.0)
    cell = Cell(tiny_llama.double(), 8, choosy=choosy)
    trainer = make_exact(cell, num_iterations=2, loss_type="dapo", **options)
    trainer.args.beta = beta
    check(trainer, cell, beta=beta, correct_kl=trainer.args.use_bias_correction_kl)


@pytest.mark.parametrize("direction", ["reverse", "forward"])
@pytest.mark.parametrize("choosy", [True, "whole"], ids=["tokens", "whole"])
def test_distillation(make_exact, tiny_llama, direction, choosy):
    cell = Cell(tiny_llama.double(), 8, choosy=choosy)
    cell.taught = True
    trainer = make_exact(cell, num_iterations=2)
    trainer.args.distillation, trainer.args.distillation_weight = direction, 0.7
    check(trainer, cell, distill=direction, distill_weight=0.7)
