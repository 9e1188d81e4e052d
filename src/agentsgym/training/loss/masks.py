"""Masks that leave tokens out of the policy loss where policy and sampler are too far apart."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from agentsgym.training.loss.batch import Chunk
from agentsgym.training.loss.ratios import step_mean
from agentsgym.types.names import ConfigError, table, unknown_key


class SamplerGap(NamedTuple):
    """How far the policy is from its sampler at P agent tokens.

    All tensors have shape (P,) and no gradient. `log_ratio` is logp − the sampler's logp (nats),
    `step_mean` its mean over the token's step, `rollout_mean`, `rollout_least` and
    `rollout_greatest` are those over the agent tokens of its rollout.
    """

    logps: torch.Tensor
    sampler_logps: torch.Tensor
    advantages: torch.Tensor
    step_mean: torch.Tensor
    rollout_mean: torch.Tensor
    rollout_least: torch.Tensor
    rollout_greatest: torch.Tensor

    @property
    def log_ratio(self) -> torch.Tensor:
        """logp − the sampler's logp."""
        return self.logps - self.sampler_logps


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicyMask:
    """A mask: `keep` takes a gap and the bounds, and returns a bool for each token.

    `published` are the bounds of the source. A mask that `needs_rollout_gap` looks at all agent
    tokens of a rollout, whose rows may be in several chunks, for which every micro-batch is read
    once more without a gradient.
    """

    name: str
    published: tuple[float, ...]
    keep: Callable[..., torch.Tensor]
    needs_rollout_gap: bool = False


def icepop(gap: SamplerGap, low: float, high: float) -> torch.Tensor:
    """low ≤ ρ ≤ high, ρ = π/π_sampler of the token. Source: IcePop, Ling Team 2025; bounds of
    AReaL's example."""
    return _within(gap.log_ratio, low, high)


def geometric_step(gap: SamplerGap, low: float, high: float) -> torch.Tensor:
    """low ≤ exp(mean log ρ over the step) ≤ high. Source: as `geometric_rollout`, with a step in
    place of the sequence."""
    return _within(gap.step_mean, low, high)


def geometric_rollout(gap: SamplerGap, low: float, high: float) -> torch.Tensor:
    """low ≤ exp(mean log ρ over the rollout) ≤ high. Source: SkyRL's sequence mask "geometric"."""
    return _within(gap.rollout_mean, low, high)


def outlier(gap: SamplerGap, low: float, high: float) -> torch.Tensor:
    """low ≤ ρ ≤ high for every token of the rollout. Source: SkyRL's outlier token mask."""
    return (gap.rollout_least >= math.log(low)) & (gap.rollout_greatest <= math.log(high))


def dppo(gap: SamplerGap, bound: float) -> torch.Tensor:
    """Not (A > 0 and π − π_sampler > bound), and not (A ≤ 0 and π − π_sampler < −bound): the
    update would move the token further away. Source: DPPO with binary total variation, as in
    prime-rl."""
    moved = gap.logps.exp() - gap.sampler_logps.exp()
    return torch.where(gap.advantages > 0, moved <= bound, moved >= -bound)


def kpop(gap: SamplerGap, bound: float) -> torch.Tensor:
    """max(KL(p‖q), KL(q‖p)) ≤ bound, of the Bernoulli distributions whether the token is sampled;
    p and q, in [1e-8, 1 − 1e-8], are its probabilities under policy and sampler. Source:
    KPop, as in AReaL."""
    # In float32 1 − 1e-8 is 1, and both divergences would be NaN.
    p, q = (x.double().exp().clamp(1e-8, 1 - 1e-8) for x in (gap.logps, gap.sampler_logps))
    said, unsaid = (p / q).log(), ((1 - p) / (1 - q)).log()
    forward, reverse = p * said + (1 - p) * unsaid, -q * said - (1 - q) * unsaid
    return torch.maximum(forward, reverse) <= bound


def _within(log_ratio: torch.Tensor, low: float, high: float) -> torch.Tensor:
    return (log_ratio >= math.log(low)) & (log_ratio <= math.log(high))


MASKS = table(
    OffPolicyMask(name="icepop", published=(0.5, 5.0), keep=icepop),
    OffPolicyMask(name="geometric_step", published=(0.99, 1.01), keep=geometric_step),
    OffPolicyMask(
        name="geometric_rollout",
        published=(0.99, 1.01),
        keep=geometric_rollout,
        needs_rollout_gap=True,
    ),
    OffPolicyMask(name="outlier", published=(1e-4, 100.0), keep=outlier, needs_rollout_gap=True),
    OffPolicyMask(name="dppo", published=(0.2,), keep=dppo),
    OffPolicyMask(name="kpop", published=(2.0,), keep=kpop),
)
"""The masks by name."""


def bounds_of(masks: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    """The bounds of each mask. Raises ConfigError for an unknown mask, and for bounds that are not
    as many as the mask has, or not in ascending order."""
    result = {}
    for name, value in masks.items():
        if name not in MASKS:
            raise ConfigError(unknown_key(name, MASKS, "off_policy_masks."))
        number = len(MASKS[name].published)
        if len(value) != number or list(value) != sorted({*value}):
            form = "one number" if number == 1 else "[lower, upper]"
            raise ConfigError(f"off_policy_masks.{name} must be {form}, got {value!r}")
        result[name] = tuple(value)
    return result


def sampler_gap(logps: torch.Tensor, chunk: Chunk) -> SamplerGap:
    """The gap of a chunk's tokens; 0 for those that no engine gave log-probabilities for."""
    logps = logps.detach()
    sampler = torch.where(chunk.sampled > 0, chunk.sampler_logps, logps)
    per_step = step_mean(logps - sampler, chunk)
    return SamplerGap(
        logps, sampler, chunk.advantages, per_step, *chunk.rollout_sampler_gap.unbind(1)
    )


def kept_by(
    masks: Mapping[str, tuple[float, ...]], logps: torch.Tensor, chunk: Chunk
) -> dict[str, torch.Tensor]:
    """Which of the chunk's tokens each mask keeps, bool of shape (P,)."""
    gap = sampler_gap(logps, chunk)
    return {name: MASKS[name].keep(gap, *bounds) for name, bounds in masks.items()}
