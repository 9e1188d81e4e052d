"""Actions that the token cap cuts off, and rollouts that the token budget ends."""

from collections.abc import Iterable, Iterator

from agentsgym.report.doctor.evidence import Evidence, PlayedSet, named, share_now
from agentsgym.report.doctor.finding import Finding
from agentsgym.types import Rollout

_BUDGET = "max_rollout_tokens"
_MOST_ACTIONS = _MOST_ROLLOUTS = 0.1


def truncated_actions(evidence: Evidence) -> Finding | None:
    """Many actions reach `max_action_tokens`."""
    curve = evidence.curve("truncated")
    if curve is None or curve.recent.mean < _MOST_ACTIONS:
        return None
    cap = evidence.setting("max_action_tokens")
    limit = "" if cap is None else f" of {cap} tokens"
    lengths = _lengths(evidence)
    return Finding(
        "truncated_actions",
        f"Many actions are cut off at the cap{limit}.",
        (
            share_now(curve, "the actions"),
            *lengths,
        ),
        (
            f"a higher train.max_action_tokens{'' if cap is None else f' (now {cap})'}",
            "a prompt that asks for short answers, or a stop string (train.stop_strings)",
            "a warm start, if the model never ends its turn (`agentsgym tokens MODEL` names the "
            "token that ends it)",
        ),
        named(evidence.recent, _cut),
        curve.recent.steps,
    )


def exhausted_budget(evidence: Evidence) -> Finding | None:
    """Many episodes end because the rollout's tokens are used up."""
    curve = evidence.curve(f"stop/{_BUDGET}")
    if curve is None or curve.recent.mean < _MOST_ROLLOUTS:
        return None
    return Finding(
        "exhausted_budget",
        "Many episodes end because the tokens of the rollout are used up.",
        (share_now(curve, "the scored episodes"),),
        (
            "a higher train.max_rollout_tokens",
            "fewer steps (max_steps_per_episode), or shorter observations",
        ),
        named(evidence.recent, _exhausted),
        curve.recent.steps,
    )


def _lengths(evidence: Evidence) -> Iterator[str]:
    curve = evidence.curve("agent_tokens")
    if curve is not None:
        yield f"{curve.recent.mean:.0f} agent tokens per rollout"


def _cut(one: PlayedSet) -> Iterable[Rollout]:
    return (r for r in one.live if any(step.truncated for e in r.episodes for step in e.steps))


def _exhausted(one: PlayedSet) -> Iterable[Rollout]:
    return (r for r in one.live if any(e.stop_reason == _BUDGET for e in r.episodes))
