"""Importance ratios at their limits: the update moves the policy too far from the sampler's."""

import math
from collections.abc import Iterable, Iterator

from agentsgym.report.doctor.evidence import Evidence, PlayedSet, named, share
from agentsgym.report.doctor.finding import Finding
from agentsgym.types import Rollout

_MOST_CLIPPED, _LEAST_ESS = 0.1, 0.3
"""Means over the whole run: what was clipped at the beginning has done its harm too."""


def ratios_clipped(evidence: Evidence) -> Finding | None:
    """Many tokens' ratios are clipped, or a few tokens have nearly all weight."""
    found = list(_logged(evidence))
    if not found:
        return None
    curve = evidence.curve("clipped") or evidence.curve("entropy")
    return Finding(
        "ratios_clipped",
        "The ratio's limits bite: an update moves the policy far from the one that played.",
        tuple(found),
        (
            "a lower train.learning_rate",
            "fewer updates of one generation (train.num_iterations, train.steps_per_generation)",
            "wider limits (epsilon, epsilon_high), or ratios of whole steps "
            "(train.ratio_scope=step)",
        ),
        named(evidence.recent, _widest),
        curve.whole.steps if curve else None,
    )


def _logged(evidence: Evidence) -> Iterator[str]:
    clipped = evidence.curve("clipped")
    if clipped is not None and clipped.whole.mean > _MOST_CLIPPED:
        yield (
            f"{share(clipped.whole.mean)} of the agent tokens are clipped in {clipped.whole}, "
            f"{share(clipped.recent.mean)} in {clipped.recent}"
        )
    for name in evidence.names():
        curve = evidence.curve(name) if _is_ess(name) else None
        if curve is not None and curve.whole.mean < _LEAST_ESS:
            yield f"{name} is {curve.whole.mean:.2g} in {curve.whole}; 1 is on-policy"


def _is_ess(name: str) -> bool:
    return name.startswith("ratio/") and name.endswith("_ess")


def _widest(one: PlayedSet) -> Iterable[Rollout]:
    """The rollouts with token records, those whose ratios are furthest from 1 first."""
    known = [rollout for rollout in one.live if rollout.session_id in one.records]
    return sorted(known, key=lambda rollout: -_width(one, rollout))


def _width(one: PlayedSet, rollout: Rollout) -> float:
    ratios = [
        ratio
        for numbers in one.records[rollout.session_id].steps.values()
        for ratio in numbers.ratios
        if math.isfinite(ratio) and ratio > 0
    ]
    return max((abs(math.log(ratio)) for ratio in ratios), default=0.0)
