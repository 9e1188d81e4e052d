"""Importance ratios of the policy to the sampling policy, in three scopes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from agentsgym.training.loss.batch import Chunk
from agentsgym.types.names import table


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioScope:
    """The tokens over which the importance ratio of a token is computed.

    `ratio` takes log-probabilities and old ones of the chunk's agent tokens, both of shape (P,),
    and returns the ratio of each, in the same shape. A scope that `needs_rollout_ratio`
    uses the sum over the whole rollout, whose rows may be in several chunks.
    """

    name: str
    ratio: Callable[[torch.Tensor, torch.Tensor, Chunk], torch.Tensor]
    needs_rollout_ratio: bool = False


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
    """Like `step_ratio`, with the mean over all agent tokens of the rollout, which the chunk
    contains. Source: GSPO-token, Zheng et al. 2025, arXiv 2507.18071."""
    return torch.exp(rollout_mean(chunk).detach() + logps - logps.detach())


def step_mean(log_ratio: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """Mean of a (P,) tensor over the agent tokens of each step, at each of its tokens."""
    values = log_ratio.detach()
    sums = values.new_zeros(chunk.steps).index_add_(0, chunk.span, values)
    counts = values.new_zeros(chunk.steps).index_add_(0, chunk.span, torch.ones_like(values))
    return (sums / counts)[chunk.span]


def rollout_mean(chunk: Chunk) -> torch.Tensor:
    """Mean log-ratio over the agent tokens of each token's rollout, shape (P,)."""
    return chunk.rollout_log_ratio / chunk.rollout_tokens.clamp(min=1.0)


def sampler_correction(old_logps: torch.Tensor, chunk: Chunk, cap: float) -> torch.Tensor:
    """Truncated ratio min(exp(old logp − sampler's logp), cap) of each token, without gradient.

    Corrects for an engine whose probabilities differ from the trainer's (another numeric type,
    other weights). 1 if the sampler gave no log-probabilities. Shape (P,).
    Source: truncated importance sampling, Ionides 2008; per token as in TRL's token_truncate.
    """
    ratio = torch.exp((old_logps - chunk.sampler_logps) * chunk.sampled)
    return ratio.clamp(max=cap).detach()


RATIO_SCOPES = table(
    RatioScope(name="token", ratio=token_ratio),
    RatioScope(name="step", ratio=step_ratio),
    RatioScope(name="rollout", ratio=rollout_ratio, needs_rollout_ratio=True),
)
"""The importance ratio's scopes by name."""
