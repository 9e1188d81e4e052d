"""A policy that explores no more."""

from agentsgym.report.doctor.evidence import Evidence, Signs

_LEAST_ENTROPY, _LEAST_ENTROPY_LEFT = 0.02, 0.1
"""Nats per token, and share of the entropy at the beginning."""


def find(evidence: Evidence) -> Signs | None:
    """Hardly any entropy is left."""
    curve = evidence.curve("entropy")
    if curve is None or not curve.is_long or evidence.is_solved:
        return None
    early, recent = curve.early, curve.recent
    if recent.mean >= _LEAST_ENTROPY and recent.mean >= _LEAST_ENTROPY_LEFT * early.mean:
        return None
    half = next(
        (s for s, v in zip(curve.steps, curve.values, strict=True) if v < early.mean / 2),
        recent.first,
    )
    lines = (
        f"entropy {early.mean:.3g} nats per token in {early}, {recent.mean:.3g} in {recent}",
        f"it first fell below half at step {half}",
    )
    return Signs(lines, (early.first, recent.last))
