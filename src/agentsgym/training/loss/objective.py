"""The objective per token: policy losses, KL, entropy, as pure functions of a chunk."""

import math
from dataclasses import dataclass

import torch

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.chunks import Chunk
from agentsgym.training.loss.ratios import (
    rollout_sum,
    sampler_correction,
    scoped_ratio,
)


@dataclass(frozen=True, slots=True)
class ObjectiveSettings:
    """TRL's loss settings under TRL's names, and ours.

    `correct_kl` weights the KL term by the ratio (`use_bias_correction_kl`). `ratio_scope` is one
    of `ratios.SCOPES`. `sampler_cap` truncates the correction for the sampler's probabilities;
    None leaves it out. `aux_coef` weights the auxiliary loss of a mixture of experts.
    """

    loss_type: str
    epsilon_low: float
    epsilon_high: float
    delta: float | None = None
    beta: float = 0.0
    correct_kl: bool = True
    entropy_coef: float = 0.0
    sapo_temperatures: tuple[float, float] = (1.0, 1.05)
    vespo: tuple[float, float, float, float] = (2.0, 3.0, 3.0, 2.0)
    ratio_scope: str = "token"
    sampler_cap: float | None = None
    aux_coef: float = 0.0

    @property
    def needs_rollout_ratio(self) -> bool:
        """Whether the loss looks at the ratio of the whole rollout."""
        return self.ratio_scope == "rollout" or self.loss_type == "vespo"


def settings_of(
    args: GRPOEnvConfig, epsilon_low: float, epsilon_high: float, aux_coef: float = 0.0
) -> ObjectiveSettings:
    """The part of a trainer's configuration that the loss needs, and what TRL made of the rest."""
    return ObjectiveSettings(
        loss_type=args.loss_type,
        epsilon_low=epsilon_low,
        epsilon_high=epsilon_high,
        delta=args.delta,
        beta=args.beta,
        correct_kl=args.use_bias_correction_kl,
        entropy_coef=args.entropy_coef,
        sapo_temperatures=(args.sapo_temperature_pos, args.sapo_temperature_neg),
        vespo=(
            args.vespo_k_pos,
            args.vespo_lambda_pos,
            args.vespo_k_neg,
            args.vespo_lambda_neg,
        ),
        ratio_scope=args.ratio_scope,
        sampler_cap=args.sampler_cap if args.sampler_correction == "truncate" else None,
        aux_coef=aux_coef,
    )


Sums = dict[str, tuple[float, float]]
"""Name → sum and count."""


@dataclass(frozen=True, slots=True)
class ChunkLoss:
    """The chunk's loss Σ weight·ℓ (a scalar with a graph), and metrics without one, each as a sum
    and the number of tokens (or rows) that it is over."""

    loss: torch.Tensor
    metrics: Sums


def chunk_loss(
    logps: torch.Tensor,
    entropy: torch.Tensor | None,
    chunk: Chunk,
    settings: ObjectiveSettings,
    aux_loss: torch.Tensor | None = None,
) -> ChunkLoss:
    """Loss and metrics from log-probabilities (and entropies, nats) of shape (B, T-1).

    `aux_loss`, the load balance of the chunk's experts, is no sum over tokens: it is weighted with
    the chunk's share of the window's tokens.
    """
    old = logps.detach() if chunk.old_logps is None else chunk.old_logps
    ratio = scoped_ratio(logps, old, chunk, settings.ratio_scope)
    loss = policy_loss(logps, ratio, chunk, settings)
    metrics = _ratio_metrics(ratio, chunk, settings)
    if settings.sampler_cap is not None:
        correction = sampler_correction(old, chunk, settings.sampler_cap)
        loss = loss * correction
        metrics |= _correction_metrics(correction, chunk, settings.sampler_cap)
    if chunk.ref_logps is not None:
        kl = kl_to_reference(logps, chunk.ref_logps)
        kl = kl * ratio if settings.correct_kl else kl
        loss = loss + settings.beta * kl
        metrics["kl"] = masked_sum(kl, chunk.mask)
    # Where the weight is zero the loss must be too, whatever padding computed there.
    total = torch.where(chunk.mask > 0, loss, 0.0).mul(chunk.weight).sum()
    if entropy is not None:
        metrics["entropy"] = masked_sum(entropy, chunk.mask)
        if settings.entropy_coef:
            total = total - settings.entropy_coef * (entropy * chunk.entropy_weight).sum()
    if aux_loss is not None and settings.aux_coef:
        total = total + settings.aux_coef * chunk.aux_weight * aux_loss
        metrics["aux_loss"] = (chunk.aux_weight * float(aux_loss.detach()), chunk.aux_weight)
    return ChunkLoss(total, metrics)


def policy_loss(
    logps: torch.Tensor, ratio: torch.Tensor, chunk: Chunk, settings: ObjectiveSettings
) -> torch.Tensor:
    """The policy loss of each token before weighting, shape (B, T-1).

    "grpo", "dapo", "dr_grpo", "luspo": PPO's clipped surrogate −min(ρA, clip(ρ)A) (Schulman et al.
    2017); they differ in their weights only. "cispo": −sg(min(ρ, ε_high))·A·logp (MiniMax 2025).
    "sapo": −σ(τ(ρ−1))·4/τ·A with τ by the sign of A (Qwen 2025). "vespo": −φ(W)·A·logp with the
    rollout's summed ratio W and φ(W) = exp(λ(1−W))·W^k (as in TRL 1.16).
    """
    advantages = chunk.advantages
    if settings.loss_type == "cispo":
        return -ratio.clamp(max=settings.epsilon_high).detach() * advantages * logps
    if settings.loss_type == "sapo":
        positive, negative = settings.sapo_temperatures
        tau = torch.where(advantages > 0, positive, negative).to(logps.dtype)
        return -torch.sigmoid(tau * (ratio - 1)) * 4 / tau * advantages
    if settings.loss_type == "vespo":
        return -_vespo_weight(chunk, settings.vespo) * advantages * logps
    clipped = ratio.clamp(1 - settings.epsilon_low, 1 + settings.epsilon_high)
    if settings.delta is not None:
        ratio = ratio.clamp(max=settings.delta)
    return -torch.min(ratio * advantages, clipped * advantages)


def _vespo_weight(chunk: Chunk, constants: tuple[float, float, float, float]) -> torch.Tensor:
    k_pos, lambda_pos, k_neg, lambda_neg = constants
    log_w = rollout_sum(chunk).clamp(math.log(1e-8), 20.0)
    positive = chunk.advantages >= 0
    k = torch.where(positive, k_pos, k_neg).to(log_w.dtype)
    lam = torch.where(positive, lambda_pos, lambda_neg).to(log_w.dtype)
    weight = torch.exp(lam + k * log_w - lam * torch.exp(log_w))
    return weight.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def kl_to_reference(logps: torch.Tensor, ref_logps: torch.Tensor) -> torch.Tensor:
    """Schulman's k3 estimate of KL to the reference per token: exp(d) − d − 1, d = ref − logp."""
    delta = ref_logps - logps
    return torch.exp(delta) - delta - 1


def masked_sum(values: torch.Tensor, mask: torch.Tensor) -> tuple[float, float]:
    """Sum over agent tokens, and their number."""
    return float((values.detach() * mask).sum()), float(mask.sum())


def _ratio_metrics(ratio: torch.Tensor, chunk: Chunk, settings: ObjectiveSettings) -> Sums:
    low = (ratio < 1 - settings.epsilon_low) & (chunk.advantages < 0)
    high = (ratio > 1 + settings.epsilon_high) & (chunk.advantages > 0)
    if settings.loss_type == "cispo":
        low, high = torch.zeros_like(low), ratio > settings.epsilon_high
    return {
        "clipped": masked_sum((low | high).to(ratio.dtype), chunk.mask),
        f"ratio/{settings.ratio_scope}_mean": masked_sum(ratio, chunk.mask),
        f"ratio/{settings.ratio_scope}_square": masked_sum(ratio**2, chunk.mask),
    }


def _correction_metrics(correction: torch.Tensor, chunk: Chunk, cap: float) -> Sums:
    rows = (chunk.mask > 0).any(dim=1)
    capped = ((correction >= cap) & (chunk.mask > 0)).any(dim=1)
    return {
        "sampler/ratio": masked_sum(correction, chunk.mask),
        "sampler/capped_rows": (float(capped.sum()), float(rows.sum())),
    }
