"""The programs that change what they sent."""

from collections.abc import Iterator

from agentsgym.report.doctor.evidence import Evidence
from agentsgym.report.doctor.looking import LOOK_AT


def more(evidence: Evidence) -> Iterator[str]:
    """The programs that change what they sent."""
    configs = [r.env_config for one in evidence.recent for r in LOOK_AT["changed_calls"](one)]
    names = {str(c.get("function") or " ".join(c.get("command") or ())) for c in configs}
    if names - {""}:
        yield f"the program: {', '.join(sorted(names - {''}))}"
