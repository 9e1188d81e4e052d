"""Muon for the matrices of a model, beside the optimizer of everything else."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from transformers.pytorch_utils import Conv1D

from agentsgym.generation.models import is_adapted


class MuonBeside(Optimizer):
    """Two optimizers as one: `muon` and `others`, whose groups and state are those of this one."""

    def __init__(self, muon: Optimizer, others: Optimizer) -> None:
        super().__init__([*muon.param_groups, *others.param_groups], {})
        self._muon, self._others = muon, others

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step of both; `closure` computes the loss again, as in torch."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        size = len(self._muon.param_groups)
        parts = (self._muon, self.param_groups[:size]), (self._others, self.param_groups[size:])
        for part, groups in parts:
            # Both are other objects after a checkpoint was loaded.
            part.param_groups, part.state = groups, self.state
            part.step()
        return loss


def check_muon(trainer: Any) -> None:
    """Raise ValueError if Muon cannot train the model of a `GRPOEnvTrainer`."""
    problem = None
    if not hasattr(torch.optim, "Muon"):
        problem = f"torch {torch.__version__} does not have it; 2.9 does"
    elif is_adapted(trainer.accelerator.unwrap_model(trainer.model)):
        problem = (
            "an adapter's two factors are no matrices of the network: what it adds is their "
            "product, and an orthogonal step of each is no orthogonal step of it; train the whole "
            "model"
        )
    elif trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        problem = "it needs whole matrices in each process, and FSDP and DeepSpeed divide them"
    elif trainer.optimizer is not None:
        problem = "an optimizer was passed to the trainer"
    if problem is not None:
        raise ValueError(f"muon=True is not supported here: {problem}")


def muon_beside(others: Optimizer, model: Any, args: Any) -> MuonBeside:
    """Take the matrices of `model` from `others` and let Muon train them.

    Its steps have the size of AdamW's (`match_rms_adamw`), so learning rate and weight decay are
    shared. Source: Liu et al. 2025, Muon is Scalable for LLM Training, arXiv 2502.16982.
    """
    matrices = matrices_of(model)
    taken = set(map(id, matrices))
    for group in others.param_groups:
        group["params"] = [p for p in group["params"] if id(p) not in taken]
    muon = torch.optim.Muon(
        matrices,
        lr=args.learning_rate,
        weight_decay=args.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    return MuonBeside(muon, others)


def matrices_of(model: Any) -> list[torch.Tensor]:
    """The weights of the linear layers between the embeddings and the head of a model."""
    ends = model.get_input_embeddings(), model.get_output_embeddings()
    outside = {id(end.weight) for end in ends if end is not None}
    weights = {
        id(part.weight): part.weight
        for part in model.modules()
        if isinstance(part, nn.Linear | Conv1D) and part.weight.requires_grad
    }
    return [weight for number, weight in weights.items() if number not in outside]
