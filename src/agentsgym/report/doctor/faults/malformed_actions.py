"""The most frequent ones."""

from collections import Counter
from collections.abc import Iterator

from agentsgym.report.doctor.evidence import Evidence
from agentsgym.report.doctor.looking import LONGEST, actions_of
from agentsgym.types.text import short_repr


def more(evidence: Evidence) -> Iterator[str]:
    """The most frequent malformed actions."""
    live = (rollout for one in evidence.recent for rollout in one.live)
    counts = Counter(step.action for step in actions_of(live) if step.unread)
    if counts:
        most = ", ".join(f"{short_repr(a, LONGEST)} ({n})" for a, n in counts.most_common(3))
        yield f"the most frequent: {most}"
