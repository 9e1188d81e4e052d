"""The last gradient."""

from agentsgym.report.doctor.evidence import Evidence, Signs


def find(evidence: Evidence) -> Signs | None:
    """The gradient's norm was no finite number in the last step."""
    norms = evidence.metrics["values"].get("grad_norm", ())
    lines = zip(evidence.metrics["phase"], evidence.metrics["step"], norms, strict=False)
    last, norm = ([(step, norm) for phase, step, norm in lines if phase == "train"] or [(0, 0)])[-1]
    if norm is not None:
        return None
    said = [f"grad_norm is infinite or NaN in step {last}"]
    if (std := evidence.curve("reward_std")) is not None:
        said.append(f"reward_std is {std.recent.mean:.3g} in {std.recent}")
    return Signs(tuple(said), (last, last))
