"""Rollouts that a chat template breaks into several rows."""

from collections.abc import Iterable, Iterator

from agentsgym.report.doctor.evidence import Evidence, PlayedSet, named
from agentsgym.report.doctor.finding import Finding
from agentsgym.types import Rollout

_MOST = 0.1
"""Breaks per rollout."""
_WORDS = {
    "thoughts": "drops earlier thoughts",
    "answer": "changes the text of the last answer",
    "opening": "writes something else before the last answer",
    "earlier": "changes earlier turns",
}


def rows_break(evidence: Evidence) -> Finding | None:
    """The chat template rewrites history, so that the context is read and trained on again."""
    breaks = evidence.curve("template_breaks")
    if breaks is None or breaks.recent.mean < _MOST:
        return None
    return Finding(
        "rows_break",
        "The chat template rewrites earlier turns: a rollout is several rows, each with the whole "
        "context.",
        (
            f"rows that the template began: {breaks.recent.mean:.2g} per rollout in "
            f"{breaks.recent}",
            *_reasons(evidence),
            *_cost(evidence),
        ),
        (
            "model.chat_template=training (TRL's template for the model, which only appends)",
            "model.chat_template_kwargs.enable_thinking=false, if it drops thoughts",
            "`agentsgym tokens MODEL` shows where and why, and what another template would cost",
        ),
        named(evidence.recent, _most_rows),
        breaks.recent.steps,
    )


def _reasons(evidence: Evidence) -> Iterator[str]:
    for what, words in _WORDS.items():
        curve = evidence.curve(f"template_breaks/{what}")
        if curve is not None:
            yield f"the template {words} ({curve.recent.mean:.2g} per rollout)"


def _cost(evidence: Evidence) -> Iterator[str]:
    tokens, rows = evidence.curve("tokens"), evidence.curve("rows_per_rollout")
    if tokens is not None and rows is not None:
        yield f"{tokens.recent.mean:.0f} tokens in {rows.recent.mean:.2g} rows per rollout"


def _most_rows(one: PlayedSet) -> Iterable[Rollout]:
    broken = [r for r in one.live if any(row.begins == "template" for row in r.rows)]
    return sorted(broken, key=lambda rollout: -len(rollout.rows))
