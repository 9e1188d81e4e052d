"""Masks that leave tokens out of the policy loss where policy and sampler are too far apart."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from agentsgym.training.loss.batch import Chunk
from agentsgym.types.names import ConfigError, table, unknown_key


class SamplerGap(NamedTuple):
    """How far the policy is from its sampler at P agent tokens; tensors of shape (P,) without
    gradient."""

    logps: torch.Tensor
    sampler_logps: torch.Tensor
    advantages: torch.Tensor

    @property
    def log_ratio(self) -> torch.Tensor:
        """logp − the sampler's logp, nats."""
        return self.logps - self.sampler_logps


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicyMask:
    """A mask: `keep` takes a gap and the bounds, and returns a bool for each token. `published` are
    the bounds of the source."""

    name: str
    published: tuple[float, ...]
    keep: Callable[..., torch.Tensor]


def icepop(gap: SamplerGap, low: float, high: float) -> torch.Tensor:
    """low ≤ ρ ≤ high, ρ = π/π_sampler of the token. Source: IcePop, Ling Team 2025; bounds of
    AReaL's example."""
    return (gap.log_ratio >= math.log(low)) & (gap.log_ratio <= math.log(high))


def dppo(gap: SamplerGap, bound: float) -> torch.Tensor:
    """Not (A > 0 and π − π_sampler > bound), and not (A ≤ 0 and π − π_sampler < −bound): the
    update would move the token further away. Source: DPPO with binary total variation, as in
    prime-rl."""
    moved = gap.logps.exp() - gap.sampler_logps.exp()
    return torch.where(gap.advantages > 0, moved <= bound, moved >= -bound)


MASKS = table(
    OffPolicyMask(name="icepop", published=(0.5, 5.0), keep=icepop),
    OffPolicyMask(name="dppo", published=(0.2,), keep=dppo),
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


def kept_by(
    masks: Mapping[str, tuple[float, ...]], logps: torch.Tensor, chunk: Chunk
) -> dict[str, torch.Tensor]:
    """Which of the chunk's tokens each mask keeps, bool of shape (P,); the gap of a token that no
    engine gave a log-probability for is 0."""
    logps = logps.detach()
    sampler = torch.where(chunk.sampled > 0, chunk.sampler_logps, logps)
    gap = SamplerGap(logps, sampler, chunk.advantages)
    return {name: MASKS[name].keep(gap, *bounds) for name, bounds in masks.items()}
