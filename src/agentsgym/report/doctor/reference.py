"""A game that its own reference player does not win, or that an untrained model plays as well."""

from collections.abc import Iterator

from agentsgym.evaluation import Evaluation
from agentsgym.report.doctor.evidence import Evidence, share
from agentsgym.report.doctor.finding import Finding

_LEAST_WON = 0.95


def reference_loses(evidence: Evidence) -> Finding | None:
    """The best known play loses many of the held-out tasks, or earns no more than the model did
    before training."""
    found = [
        line
        for label, figures in evidence.evaluations.items()
        for name, part in _parts(figures)
        for line in _told(label, name, part)
    ]
    if not found:
        return None
    return Finding(
        "reference_loses",
        "The reference player does not win: the tasks, limits or rewards are in doubt.",
        tuple(dict.fromkeys(found)),
        (
            f"`agentsgym eval agent:optimal --env {evidence.env} --output DIR` with the run's "
            "settings, and its lost games: `agentsgym view DIR`",
            "more steps (max_steps_per_episode), or tasks that can be won with those there are",
            f"`agentsgym check {evidence.env}`",
        ),
    )


def _parts(figures: Evaluation) -> Iterator[tuple[str, Evaluation]]:
    yield from figures.environments.items() or [("", figures)]


def _told(label: str, name: str, figures: Evaluation) -> Iterator[str]:
    reference, reward = figures.reference, figures.reward
    of = f"{name}: " if name else ""
    if reference is None or reward is None:
        return
    if figures.win_rate == reward and reference < _LEAST_WON:
        yield f"{of}best known play wins {share(reference)} of the held-out tasks"
    elif label == "before" and reference <= reward:
        yield (
            f"{of}best known play earns {reference:.3g} on the held-out tasks, and the model "
            f"{reward:.3g} before training"
        )
