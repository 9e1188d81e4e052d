"""Their most frequent errors."""

from collections import Counter
from collections.abc import Iterator

from agentsgym.report.doctor.evidence import Evidence
from agentsgym.report.doctor.looking import LOOK_AT
from agentsgym.types.text import short_repr


def more(evidence: Evidence) -> Iterator[str]:
    """The most frequent error of each environment."""
    counts: dict[str, Counter[str]] = {}
    for one in evidence.recent:
        for rollout in LOOK_AT["failed"](one):
            line = str(rollout.error).strip().splitlines()[-1:] or [""]
            counts.setdefault(rollout.env_class_path, Counter())[line[0]] += 1
    for name, errors in counts.items():
        error, count = errors.most_common(1)[0]
        yield f"{name}: {short_repr(error, 160)} ({count} of {errors.total()} that were read)"
