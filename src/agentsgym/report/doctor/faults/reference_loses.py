"""Best known play loses."""

from collections.abc import Iterator

from agentsgym.evaluation import Evaluation
from agentsgym.report.doctor.evidence import Evidence, Signs, share

_LEAST_WON = 0.95


def find(evidence: Evidence) -> Signs | None:
    """Best known play loses, or earns no more than the model before training."""
    lines = [
        line
        for label, figures in evidence.evaluations.items()
        for name, part in figures.environments.items() or [("", figures)]
        for line in _reference_line(label, f"{name}: " if name else "", part)
    ]
    return Signs(tuple(dict.fromkeys(lines))) if lines else None


def _reference_line(label: str, of: str, figures: Evaluation) -> Iterator[str]:
    reference, reward = figures.reference, figures.reward
    if reference is None or reward is None:
        return
    if figures.win_rate == reward and reference < _LEAST_WON:
        yield f"{of}best known play wins {share(reference)} of the held-out tasks"
    elif label == "before" and reference <= reward:
        yield (
            f"{of}best known play earns {reference:.3g} on the held-out tasks, and the model "
            f"{reward:.3g} before training"
        )
