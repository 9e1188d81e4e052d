"""Actions that the environment cannot read."""

from collections import Counter
from collections.abc import Iterable, Iterator

from agentsgym.report.doctor.evidence import Evidence, PlayedSet, named, share_now
from agentsgym.report.doctor.finding import Finding
from agentsgym.types import Rollout, Step

_MOST = 0.1
_LONGEST = 60


def malformed_actions(evidence: Evidence) -> Finding | None:
    """The environment calls many actions malformed, or does not parse them."""
    for name in ("malformed", "unparsed"):
        curve = evidence.curve(name)
        if curve is None or curve.recent.mean < _MOST:
            continue
        return Finding(
            "malformed_actions",
            "The environment cannot read many of the actions.",
            (
                share_now(curve, f"the actions are {name}"),
                *_examples(evidence),
            ),
            (
                "a prompt that shows the form of an action (explain_actions, system_prompt)",
                "a warm start, so that the model knows the form before it is rewarded",
                "a penalty for malformed actions, or a larger error_allowance if they come early",
            ),
            named(evidence.recent, _with_malformed),
            curve.recent.steps,
        )
    return None


def _examples(evidence: Evidence) -> Iterator[str]:
    said = Counter(
        _short(step.action)
        for one in evidence.recent
        for rollout in one.live
        for step in _steps(rollout)
    )
    if said:
        told = ", ".join(f"{text!r} ({count})" for text, count in said.most_common(3))
        yield f"the most frequent: {told}"


def _with_malformed(one: PlayedSet) -> Iterable[Rollout]:
    return (rollout for rollout in one.live if any(_steps(rollout)))


def _steps(rollout: Rollout) -> Iterator[Step]:
    for episode in rollout.episodes:
        for step in episode.actions:
            if step.malformed or _unparsed(step):
                yield step


def _unparsed(step: Step) -> bool:
    metrics = step.info.get("metrics")
    return isinstance(metrics, dict) and bool(metrics.get("unparsed"))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
