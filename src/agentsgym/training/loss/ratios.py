"""Importance ratios of the policy to the sampling policy, in three scopes."""

from collections.abc import Callable, Mapping

import torch

from agentsgym.training.loss.batch import Chunk

Ratio = Callable[[torch.Tensor, torch.Tensor, Chunk], torch.Tensor]
"""(logps, old logps, chunk) → the importance ratio of each of the chunk's agent tokens; all of
shape (P,)."""


def token_ratio(logps: torch.Tensor, old_logps: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """exp(logp − old), shape (P,)."""
    return torch.exp(logps - old_logps)


def step_ratio(logps: torch.Tensor, old_logps: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """s · exp(logp − sg(logp)), s = sg(exp(mean of logp − old over the step's agent tokens)).

    sg is stop-gradient: the value is the scope's ratio, but the gradient is the token's own. So
    on-policy all scopes give the same gradient, and token-level advantages are preserved.
    Source: GSPO-token, Zheng et al. 2025, arXiv 2507.18071, with a step in place of the sequence.
    """
    return torch.exp(step_mean(logps - old_logps, chunk).detach() + logps - logps.detach())


def rollout_ratio(logps: torch.Tensor, old_logps: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """Like `step_ratio`, with the mean over all agent tokens of the rollout, whose rows may be in
    several chunks: `Chunk.rollout_log_ratio`."""
    mean = chunk.rollout_log_ratio / chunk.rollout_tokens.clamp(min=1.0)
    return torch.exp(mean.detach() + logps - logps.detach())


def step_mean(log_ratio: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """Mean of a (P,) tensor over the agent tokens of each step, at each of its tokens."""
    values = log_ratio.detach()
    sums = values.new_zeros(chunk.steps).index_add_(0, chunk.span, values)
    counts = values.new_zeros(chunk.steps).index_add_(0, chunk.span, torch.ones_like(values))
    return (sums / counts)[chunk.span]


def sampler_correction(old_logps: torch.Tensor, chunk: Chunk, cap: float) -> torch.Tensor:
    """Truncated ratio min(exp(old logp − sampler's logp), cap) of each token, without gradient.

    Corrects for an engine whose probabilities differ from the trainer's (another numeric type,
    other weights). 1 if the sampler gave no log-probabilities. Shape (P,).
    Source: truncated importance sampling, Ionides 2008; per token as in TRL's token_truncate.
    """
    ratio = torch.exp((old_logps - chunk.sampler_logps) * chunk.sampled)
    return ratio.clamp(max=cap).detach()


RATIO_SCOPES: Mapping[str, Ratio] = {
    "token": token_ratio,
    "step": step_ratio,
    "rollout": rollout_ratio,
}
"""The ratio by the tokens over which it is computed."""
