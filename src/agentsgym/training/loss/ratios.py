"""Importance ratios of the policy against the one that sampled, in three scopes."""

import torch

from agentsgym.training.loss.chunks import Chunk

SCOPES = ("token", "step", "rollout")


def scoped_ratio(
    logps: torch.Tensor, old_logps: torch.Tensor, chunk: Chunk, scope: str
) -> torch.Tensor:
    """The importance ratio of each agent token in its scope, shape (B, T-1).

    "token": exp(logp − old). "step" and "rollout": s · exp(logp − sg(logp)) with
    s = sg(exp(mean of logp − old over the agent tokens of the step, or rollout)), sg being
    stop-gradient. The value is the scope's ratio while the gradient stays the token's own, so that
    on-policy all scopes give the same gradient and token-level advantages survive. The rollout's
    mean comes with the chunk, because its rows may lie in several.
    Source: GSPO-token, Zheng et al. 2025, arXiv 2507.18071.
    """
    log_ratio = logps - old_logps
    if scope == "token":
        return torch.exp(log_ratio)
    mean = rollout_mean(chunk) if scope == "rollout" else step_mean(log_ratio, chunk)
    return torch.exp(mean.detach() + logps - logps.detach())


def step_mean(log_ratio: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """Mean of a (B, T-1) tensor over the agent tokens of each step, at each of its tokens."""
    spans = int(chunk.span.max()) + 2 if chunk.span.numel() else 1
    index = (chunk.span + 1).reshape(-1)
    values = (log_ratio * chunk.mask).detach().reshape(-1)
    sums = torch.zeros(spans, dtype=values.dtype, device=values.device)
    counts = torch.zeros_like(sums)
    sums.index_add_(0, index, values)
    counts.index_add_(0, index, chunk.mask.reshape(-1).to(values.dtype))
    return (sums / counts.clamp(min=1.0))[index].reshape(log_ratio.shape)


def rollout_mean(chunk: Chunk) -> torch.Tensor:
    """Mean log-ratio over the agent tokens of each row's rollout, shape (B, 1)."""
    sums, counts = chunk.rollout_log_ratio[:, :1], chunk.rollout_log_ratio[:, 1:]
    return sums / counts.clamp(min=1.0)


def rollout_sum(chunk: Chunk) -> torch.Tensor:
    """Summed log-ratio over the agent tokens of each row's rollout, shape (B, 1)."""
    return chunk.rollout_log_ratio[:, :1]


def sampler_correction(old_logps: torch.Tensor, chunk: Chunk, cap: float) -> torch.Tensor:
    """Truncated ratio min(exp(old logp − sampler's logp), cap) of each token, without gradient.

    Corrects for an engine whose probabilities differ from the trainer's (another numeric type,
    other weights). 1 where the sampler gave no log-probabilities. Shape (B, T-1).
    Source: truncated importance sampling, Ionides 2008; per token as in TRL's token_truncate.
    """
    ratio = torch.exp((old_logps - chunk.sampler_logps) * chunk.sampled)
    return ratio.clamp(max=cap).detach()
