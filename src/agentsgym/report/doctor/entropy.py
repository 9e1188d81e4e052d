"""A policy that no longer tries anything else."""

from agentsgym.report.doctor.evidence import Evidence
from agentsgym.report.doctor.finding import Finding

_LEAST, _LEAST_LEFT = 0.02, 0.1
"""Nats per token, and share of the entropy at the beginning."""


def entropy_gone(evidence: Evidence) -> Finding | None:
    """The policy is certain of nearly every token before it wins."""
    curve = evidence.curve("entropy")
    if curve is None or not curve.is_long or evidence.is_solved:
        return None
    early, recent = curve.early, curve.recent
    if recent.mean >= _LEAST and recent.mean >= _LEAST_LEFT * early.mean:
        return None
    half = next(
        (s for s, v in zip(curve.steps, curve.values, strict=True) if v < early.mean / 2),
        recent.first,
    )
    return Finding(
        "entropy_gone",
        "The policy's entropy is gone, so it explores no more, and it does not win yet.",
        (
            f"entropy {early.mean:.3g} nats per token in {early}, {recent.mean:.3g} in {recent}",
            f"it first fell below half at step {half}",
        ),
        (
            f"continue from a checkpoint before step {half} with a lower train.learning_rate",
            "a higher train.temperature, a KL penalty (train.beta above 0)",
            "a larger epsilon_high, so that unlikely tokens can gain (DAPO's clip-higher)",
        ),
        (),
        (early.first, recent.last),
    )
