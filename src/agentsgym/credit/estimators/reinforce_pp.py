"""The return against all steps of the batch: REINFORCE++."""

from dataclasses import replace

import numpy as np

from agentsgym.credit.baselines import comparable, less_group_mean, returns_to_go
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.table import StepTable, without_rounding
from agentsgym.types.rows import Floats


def reinforce_pp(table: StepTable, *, baseline: str = "batch", gamma: float = 1.0) -> Floats:
    """Return-to-go against the agent tokens of the whole batch, shape (N,).

    A = (G_t − mean) / √(variance + 1e-8) over all agent tokens, with the discounted return G_t to
    the end of the rollout. With `baseline="group"` R minus the mean of its group stands for G_t.
    With "loo" A = G_t minus the mean over the agent tokens of the batch's other rollouts.

    Bias: none for "loo" with gamma = 1. Otherwise the mean includes the rollout itself and the
    divisor depends on it, the less the larger the batch. Groups differ in difficulty, which a mean
    over the batch leaves in as noise; without it and the divisor, "group" would be "rloo".
    Source: Hu et al. 2025 (REINFORCE++), arXiv 2501.03262. Its released code sums rewards from
    behind and starts anew at tokens that are not the agent's: with masked observations a step gets
    its own reward only, which is `gamma=0` here.
    """
    if baseline not in ("batch", "group", "loo"):
        raise ValueError(f"baseline must be 'batch', 'group' or 'loo', got {baseline!r}")
    live = comparable(table)[table.rollout]
    tokens = np.where(live, table.tokens, 0)
    if baseline == "group":
        values = less_group_mean(table)[table.rollout]
    else:
        whole = replace(table, episode=np.zeros_like(table.episode))
        values = np.where(live, returns_to_go(whole, gamma), 0.0)
    total, number = float(tokens @ values), int(tokens.sum())
    size = table.size.max(initial=0.0)
    if baseline == "loo":
        own = np.bincount(table.rollout, tokens * values, minlength=1)[table.rollout]
        others = number - np.bincount(table.rollout, tokens, minlength=1)[table.rollout]
        values = without_rounding(values - (total - own) / np.maximum(others, 1), size)
        return np.where(live, values, 0.0)
    centered = without_rounding(values - total / max(number, 1), size)
    variance = float(tokens @ centered**2) / max(number - 1, 1)
    return np.where(live, centered / np.sqrt(variance + 1e-8), 0.0)


ESTIMATOR = Estimator(
    name="reinforce_pp",
    help="the return minus the mean over the whole batch, scaled",
    assign=reinforce_pp,
    over_batch=True,
    variants=(
        Variant(options={}, error=0.38, turned=0.25),
        Variant(options={"baseline": "group"}, error=0.37, turned=0.26),
        Variant(options={"gamma": 0.0}, error=0.48, turned=0.34),
        Variant(options={"baseline": "loo"}, error=0.0, turned=0.0),
    ),
)
