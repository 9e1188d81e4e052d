"""The policy loss per token, as pure functions of (B, T) tensors."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LossSettings:
    """Clip range [1−`epsilon_low`, 1+`epsilon_high`], upper bound `delta` of the unclipped
    ratio (None: none), KL weight `beta`, entropy bonus `entropy_coef`; `correct_kl` weights the
    KL term by the importance ratio, as TRL's `use_bias_correction_kl`."""

    epsilon_low: float
    epsilon_high: float
    delta: float | None
    beta: float
    entropy_coef: float
    correct_kl: bool = True


def clipped_policy_loss(
    logps: torch.Tensor,
    old_logps: torch.Tensor,
    advantages: torch.Tensor,
    settings: LossSettings,
) -> torch.Tensor:
    """PPO's clipped surrogate per token, −min(ρ·A, clip(ρ)·A) with ρ = exp(logp − old logp).

    All tensors have shape (B, T). Source: Schulman et al. 2017, arXiv 1707.06347.
    """
    ratio = torch.exp(logps - old_logps)
    clipped = ratio.clamp(1 - settings.epsilon_low, 1 + settings.epsilon_high)
    if settings.delta is not None:
        ratio = ratio.clamp(max=settings.delta)
    return -torch.min(ratio * advantages, clipped * advantages)


def kl_to_reference(logps: torch.Tensor, ref_logps: torch.Tensor) -> torch.Tensor:
    """Schulman's k3 estimate of KL(policy ‖ reference) per token, exp(d) − d − 1, d = ref − logp."""
    delta = ref_logps - logps
    return torch.exp(delta) - delta - 1


def clip_shares(
    logps: torch.Tensor,
    old_logps: torch.Tensor,
    advantages: torch.Tensor,
    settings: LossSettings,
) -> torch.Tensor:
    """1.0 where the clip takes the gradient away (shape (B, T)), else 0.0."""
    ratio = torch.exp(logps - old_logps)
    low = (ratio < 1 - settings.epsilon_low) & (advantages < 0)
    high = (ratio > 1 + settings.epsilon_high) & (advantages > 0)
    return (low | high).to(logps.dtype)
