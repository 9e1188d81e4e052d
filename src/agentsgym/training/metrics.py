"""Means of what the chunks of a step report, however they were divided.

Figures about rollouts are defined in `agentsgym.evaluation.metrics`.
"""

from collections.abc import Mapping, Sequence


def mean_of_sums(parts: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """Means over the tokens of all chunks and ranks together, however they were divided.

    Each part maps a name to (sum, count). A ratio's `_mean` and `_square` become its effective
    sample size `_ess` = (Σρ)² / (n·Σρ²): 1 on-policy, towards 0 where few tokens carry all.
    """
    totals: dict[str, tuple[float, float]] = {}
    for part in parts:
        for name, (value, number) in part.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = before[0] + value, before[1] + number
    means = {name: value / number for name, (value, number) in totals.items() if number}
    for name in [name for name in means if name.endswith("_square")]:
        mean, square = means.pop(name.replace("_square", "_mean")), means.pop(name)
        means[name.replace("_square", "_ess")] = mean**2 / square if square else 0.0
    return means
