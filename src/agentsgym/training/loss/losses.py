"""The loss types: one entry for each, with its formula, its weights and all its requirements."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from agentsgym.training.loss import weights
from agentsgym.training.loss.batch import Chunk
from agentsgym.training.loss.weights import Divisor
from agentsgym.types.names import table

Formula = Callable[..., torch.Tensor]
"""(logps, ratio, chunk, *, settings by name) → the policy loss of each token before weighting.
All tensors have shape (P,), the chunk's agent tokens."""

Clipped = Callable[[torch.Tensor, Chunk, float, float], torch.Tensor]
"""(ratio, chunk, epsilon, epsilon_high) → bool of shape (P,): the tokens whose ratio is outside
the bounds, for the metric `clipped`."""


@dataclass(frozen=True, slots=True)
class LossType:
    """A complete loss type.

    The keyword-only arguments of `formula` are the settings of `GRPOEnvConfig` that it uses.
    `needs_rollout_ratio`: it uses the ratio of the whole rollout, whatever the scope.
    """

    name: str
    formula: Formula
    divisor: Divisor
    clipped: Clipped
    needs_rollout_ratio: bool = False

    @property
    def needs_norm_tokens(self) -> bool:
        """Whether the divisor uses `norm_tokens`."""
        return self.divisor is weights.per_constant

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that the formula uses."""
        parameters = inspect.signature(self.formula).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def clipped_surrogate(
    logps: torch.Tensor,
    ratio: torch.Tensor,
    chunk: Chunk,
    *,
    epsilon: float,
    epsilon_high: float,
    delta: float | None,
) -> torch.Tensor:
    """PPO's −min(ρA, clip(ρ, 1 − ε, 1 + ε_high)·A), with ρ at most δ if δ is given."""
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    if delta is not None:
        ratio = ratio.clamp(max=delta)
    return -torch.min(ratio * chunk.advantages, clipped * chunk.advantages)


def cispo(
    logps: torch.Tensor, ratio: torch.Tensor, chunk: Chunk, *, epsilon_high: float
) -> torch.Tensor:
    """−sg(min(ρ, ε_high))·A·logp, sg being stop-gradient. Source: MiniMax 2025 (CISPO), arXiv
    2506.13585."""
    return -ratio.clamp(max=epsilon_high).detach() * chunk.advantages * logps


def sapo(
    logps: torch.Tensor,
    ratio: torch.Tensor,
    chunk: Chunk,
    *,
    sapo_temperature_pos: float,
    sapo_temperature_neg: float,
) -> torch.Tensor:
    """−σ(τ(ρ − 1))·4/τ·A, with τ by the sign of A. Source: Soft Adaptive Policy Optimization, 2025,
    arXiv 2511.20347."""
    positive = chunk.advantages > 0
    tau = torch.full_like(logps, sapo_temperature_neg)  # in its type: `where` makes float32
    tau = tau.masked_fill(positive, sapo_temperature_pos)
    return -torch.sigmoid(tau * (ratio - 1)) * 4 / tau * chunk.advantages


def vespo(
    logps: torch.Tensor,
    ratio: torch.Tensor,
    chunk: Chunk,
    *,
    vespo_k_pos: float,
    vespo_lambda_pos: float,
    vespo_k_neg: float,
    vespo_lambda_neg: float,
) -> torch.Tensor:
    """−φ(W)·A·logp with the rollout's summed ratio W and φ(W) = exp(λ(1 − W))·W^k. Source:
    Variational Sequence-Level Soft Policy Optimization, 2026, arXiv 2602.10693; φ as in TRL 1.16.
    """
    log_w = chunk.rollout_log_ratio.clamp(math.log(1e-8), 20.0)
    positive = chunk.advantages >= 0
    k = torch.where(positive, vespo_k_pos, vespo_k_neg).to(log_w.dtype)
    lam = torch.where(positive, vespo_lambda_pos, vespo_lambda_neg).to(log_w.dtype)
    weight = torch.exp(lam + k * log_w - lam * torch.exp(log_w))
    return -weight.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) * chunk.advantages * logps


def beyond_both(ratio: torch.Tensor, chunk: Chunk, low: float, high: float) -> torch.Tensor:
    """The tokens for which PPO's clip stops the gradient."""
    falling = (ratio < 1 - low) & (chunk.advantages < 0)
    return falling | ((ratio > 1 + high) & (chunk.advantages > 0))


def beyond_cap(ratio: torch.Tensor, chunk: Chunk, low: float, high: float) -> torch.Tensor:
    """The tokens whose ratio is above the bound itself."""
    return ratio > high


LOSSES = table(
    LossType("grpo", clipped_surrogate, weights.per_rollout_token, beyond_both),
    LossType("dapo", clipped_surrogate, weights.per_token, beyond_both),
    LossType("dr_grpo", clipped_surrogate, weights.per_constant, beyond_both),
    LossType("cispo", cispo, weights.per_token, beyond_cap),
    LossType("sapo", sapo, weights.per_rollout_token, beyond_both),
    LossType("luspo", clipped_surrogate, weights.per_rollout, beyond_both),
    LossType("vespo", vespo, weights.per_token, beyond_both, needs_rollout_ratio=True),
)
"""The loss types by name."""
