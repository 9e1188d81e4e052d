"""`update_size`: how far an optimizer step moves the weights."""

import pytest
import torch
from torch import nn

from agentsgym.training.update import UpdateSize, sample


def moved(model, change):
    """What is recorded of a step that changes the weights."""
    recorded = []
    callback = UpdateSize(lambda name, value: recorded.append((name, value)))
    callback.on_pre_optimizer_step(None, None, None, model=model)
    with torch.no_grad():
        change(model)
    callback.on_optimizer_step(None, None, None, model=model)
    return recorded


def test_the_change_is_measured_by_the_size_of_the_weights():
    """From (3, 4), of size 5, by (0.3, 0.4), of size 0.5."""
    model = nn.Linear(2, 1, bias=False)
    model.weight.data = torch.tensor([[3.0, 4.0]])
    ((name, value),) = moved(model, lambda m: m.weight.mul_(1.1))
    assert name == "update_size" and value == pytest.approx(0.1, rel=1e-5)


def test_frozen_weights_do_not_count():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(1, 1, bias=False))
    model[0].requires_grad_(False)
    model[1].weight.data.fill_(2.0)
    ((_, value),) = moved(model, lambda m: m[1].weight.fill_(3.0))
    assert value == pytest.approx(0.5)


def test_the_cost_is_bounded():
    """Of 100 tensors every fourth one, of a large one its beginning."""
    model = nn.ParameterList([nn.Parameter(torch.full((3,), float(k))) for k in range(100)])
    assert [int(one[0]) for one in sample(model)] == list(range(0, 100, 4))
    assert [len(one) for one in sample(nn.Linear(5000, 1, bias=False))] == [4096]
