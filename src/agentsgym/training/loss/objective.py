"""The loss of a chunk (formula, KL, entropy, their metrics) and of a micro-batch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.batch import Chunk, TrainRollout, TrainRow
from agentsgym.training.loss.forest import Layout
from agentsgym.training.loss.logprobs import Pass, Scored, Scorer, Scores
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.loss.masks import kept_by
from agentsgym.training.loss.ratios import RATIO_SCOPES, sampler_correction
from agentsgym.training.token_sample import TokenSample

Sums = dict[str, tuple[float, float]]
"""Name → sum and count."""

OnDevice = dict[str, tuple[torch.Tensor, float]]
"""Name → sum, a scalar tensor without a graph, and count."""


@dataclass(frozen=True, slots=True)
class ChunkLoss:
    """The chunk's loss Σ weight·ℓ (a scalar with a graph), metrics without a graph, each as a sum
    and the number of its tokens (or rows), and the importance ratios, shape (P,)."""

    loss: torch.Tensor
    metrics: Sums
    ratio: torch.Tensor


def chunk_loss(
    logps: torch.Tensor,
    entropy: torch.Tensor | None,
    chunk: Chunk,
    args: GRPOEnvConfig,
) -> ChunkLoss:
    """Loss and metrics from log-probabilities (and entropies, nats) of shape (P,)."""
    kind, high = LOSSES[args.loss_type], args.epsilon_high
    bounds = {"epsilon": args.epsilon, "epsilon_high": args.epsilon if high is None else high}
    settings = {name: bounds.get(name, getattr(args, name)) for name in kind.settings}
    old = chunk.logps.get("old", logps.detach())
    ratio = RATIO_SCOPES[args.ratio_scope](logps, old, chunk)
    loss = kind.formula(logps, ratio, chunk, **settings)
    if not args.policy_gradient:
        loss = loss * 0.0
    clipped = kind.clipped(ratio, chunk, *bounds.values())
    metrics = _ratio_metrics(ratio, clipped, args.ratio_scope)
    if args.sampler_correction == "truncate":
        correction = sampler_correction(old, chunk, args.sampler_cap)
        loss = loss * correction
        metrics |= _correction_metrics(old, correction, chunk, args.sampler_cap)
    if args.off_policy_bounds:
        loss, shares = _masked(loss, kept_by(args.off_policy_bounds, logps, chunk))
        metrics |= shares
    terms = {"policy": (1.0, loss)}
    if "reference" in chunk.logps:
        kl = kl_to_reference(logps, chunk.logps["reference"])
        kl = kl * ratio if args.use_bias_correction_kl else kl
        metrics["kl"] = summed(kl)
        terms["reference"] = args.beta, kl
    if "teacher" in chunk.logps:
        distance = DISTANCES[args.distillation](logps, chunk.logps["teacher"])
        distance = distance * torch.exp(logps - old)
        if args.sampler_correction == "truncate":
            distance = distance * correction
        metrics["distillation"] = summed(distance)
        terms["teacher"] = args.distillation_weight, distance
    if entropy is not None:
        metrics["entropy"] = summed(entropy)
        if args.entropy_coef:
            terms["entropy"] = -args.entropy_coef, entropy
    total = logps.new_zeros(())
    for name, (factor, values) in terms.items():
        total = total + factor * (values * chunk.weights[name]).sum()
    return ChunkLoss(total, downloaded(metrics, logps.dtype), ratio.detach())


def downloaded(metrics: OnDevice, dtype: torch.dtype) -> Sums:
    """The metrics as numbers, for which the CPU waits once."""
    sums = torch.stack([total.to(dtype) for total, _ in metrics.values()]).tolist()
    counts = [count for _, count in metrics.values()]
    return dict(zip(metrics, zip(sums, counts, strict=True), strict=True))


def kl_to_reference(logps: torch.Tensor, ref_logps: torch.Tensor) -> torch.Tensor:
    """Schulman's k3 estimate of KL to the reference per token: exp(d) − d − 1, d = ref − logp."""
    delta = ref_logps - logps
    return torch.exp(delta) - delta - 1


def kl_from_teacher(logps: torch.Tensor, teacher_logps: torch.Tensor) -> torch.Tensor:
    """An estimate of KL from the teacher per token: d·exp(d) − exp(d) + 1, d = teacher − logp.

    Like `kl_to_reference` it is at least 0, and on tokens of the policy its mean is the KL: that of
    exp(d) is 1. Times the importance ratio ρ, the gradient of both is an unbiased one of the KL:
    −ρ·d·∇logp of KL to the teacher, ρ·(1 − exp(d))·∇logp of KL from it.
    """
    delta = teacher_logps - logps
    return torch.exp(delta) * (delta - 1) + 1


DISTANCES = {"reverse": kl_to_reference, "forward": kl_from_teacher}
"""What distillation minimizes, by direction."""


def summed(values: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Sum over agent tokens, and their number."""
    return values.detach().sum(), float(values.numel())


def _ratio_metrics(ratio: torch.Tensor, clipped: torch.Tensor, scope: str) -> OnDevice:
    return {
        "clipped": summed(clipped.to(ratio.dtype)),
        f"ratio/{scope}_mean": summed(ratio),
        f"ratio/{scope}_square": summed(ratio**2),
    }


def _masked(loss: torch.Tensor, kept: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, OnDevice]:
    """The loss without the tokens that a mask leaves out, and the share of these."""
    by_all = torch.stack([*kept.values()]).all(0)
    named = {"masked": by_all} | {f"masked/{name}": keep for name, keep in kept.items()}
    return torch.where(by_all, loss, 0.0), {name: summed(~keep) for name, keep in named.items()}


def _correction_metrics(
    old: torch.Tensor, correction: torch.Tensor, chunk: Chunk, cap: float
) -> OnDevice:
    difference = (old.detach() - chunk.sampler_logps).abs() * chunk.sampled
    sampled = sum(row.agent_tokens for row in chunk.rows if row.sampled)
    at_cap = (correction >= cap).to(correction.dtype)
    capped = at_cap.new_zeros(len(chunk.rows)).index_add_(0, chunk.in_row, at_cap) > 0
    ratio = summed(correction)
    return {
        "sampler/logp_difference": (difference.sum(), float(sampled)),
        "sampler/ratio": ratio,
        "sampler/ratio_mean": ratio,
        "sampler/ratio_square": summed(correction**2),
        "sampler/capped_rows": (capped.sum(), float(len(np.unique(chunk.row)))),
    }


# -- a micro-batch ---------------------------------------------------------------------------------

_EXACT = 1e-3
"""Largest difference of the sampler's log-probabilities (nats) up to which they are the policy's:
an error of 0.1 % in a ratio that is clipped at 20 %."""


class MicroBatchLoss:
    """Σ weight·ℓ over the agent tokens of rollouts, computed in chunks of rows. `sample` records
    the numbers of a few rollouts."""

    def __init__(self, scorer: Scorer, args: GRPOEnvConfig, sample: TokenSample) -> None:
        self.scorer = scorer
        self.args = args
        self.sample = sample
        self._reused = args.updates_per_generation > 1
        self._sampler_gap = -math.inf  # nothing compared

    def fill_old(self, rollouts: Sequence[TrainRollout], model: nn.Module) -> None:
        """Log-probabilities before the first update for the rollouts of a generation that only
        later updates train on. Those of the first update are kept from its own passes; if these
        agree with the sampler's, the sampler's are taken, and no pass is needed."""
        sampled = all(row.sampled for rollout in rollouts for row in rollout.rows)
        on_policy = sampled and not any(rollout.replayed for rollout in rollouts)
        here = self._sampler_gap if on_policy else math.inf
        self._sampler_gap = -math.inf
        exact = 0 <= max(self.scorer.ranks.gather([here])) <= _EXACT
        read = partial(self.scorer.logps_of, model=model)
        Pass("old", _of_the_sampler if exact else read).run(rollouts)

    def layouts(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> list[Layout]:
        """Rows of the rollouts in forward passes, the same number on every rank. Before the first
        one the figures of whole rollouts are computed, if the loss needs them."""
        distills = self.args.teacher_model is not None
        trained = [r for r in rollouts if r.in_loss or (distills and not r.played.failed)]
        of_rollouts = self.args.ratio_scope == "rollout"
        if self._reused and (of_rollouts or LOSSES[self.args.loss_type].needs_rollout_ratio):
            self._fill_rollout_ratios(model, trained)
        return self.scorer.layouts([row for r in trained for row in r.rows], model)

    def of_layout(self, model: nn.Module, layout: Layout) -> ChunkLoss:
        """Loss and metrics of one forward pass."""
        scores = self.scorer.forward(model, layout)
        part = chunk_loss(scores.logps, scores.entropy, scores.chunk, self.args)
        if self._reused and "old" not in scores.chunk.logps:
            self._keep_old(scores)
        self.sample.record(scores.chunk, scores.logps, part.ratio, scores.entropy)
        return part

    def _keep_old(self, scores: Scores) -> None:
        """Keep a chunk's log-probabilities for later updates, and how far the sampler's are off."""
        chunk, logps = scores.chunk, scores.logps.detach()
        gaps = torch.where(chunk.sampled > 0, (logps - chunk.sampler_logps).abs(), torch.inf)
        self._sampler_gap = max([self._sampler_gap, *gaps.tolist()])
        for row, own in zip(chunk.rows, chunk.split(logps), strict=True):
            row.logps["old"] = own

    def _fill_rollout_ratios(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> None:
        """The log-ratio of whole rollouts to the old policy, which is 0 before the first update:
        their rows may be in several chunks."""
        rows = [row for rollout in rollouts for row in rollout.rows if row.agent_tokens]
        if any(self.scorer.ranks.gather([any("old" not in row.logps for row in rows)])):
            return
        for row, logps in self.scorer.logps_of(rows, model):
            ratio = logps.cpu().double() - row.logps["old"].cpu()
            row.rollout_log_ratio = float(ratio.sum()), 0
        for rollout in rollouts:
            own = [row.rollout_log_ratio[0] for row in rollout.rows if row.agent_tokens]
            for row in rollout.rows:
                row.rollout_log_ratio = sum(own), rollout.agent_tokens


def _of_the_sampler(rows: Sequence[TrainRow]) -> Scored:
    return [(row, torch.from_numpy(row.logprobs[row.positions])) for row in rows]
