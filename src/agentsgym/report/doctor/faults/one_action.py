"""A collapsed policy."""

from collections import Counter
from collections.abc import Iterable, Sequence

from agentsgym.report.doctor.evidence import Evidence, Signs, share
from agentsgym.report.doctor.looking import LONGEST, actions_of, steps_of
from agentsgym.report.stored import Contents
from agentsgym.types import Rollout
from agentsgym.types.text import short_repr

_MOST_SAME, _LEAST_ACTIONS, _LEAST_TASKS = 0.9, 30, 2


def find(evidence: Evidence) -> Signs | None:
    """Nearly all actions are the same."""
    sets = evidence.recent
    actions = _texts(sets)
    tasks = len({(one.of.id, rollout.group) for one in sets for rollout in one.live})
    if actions.total() < _LEAST_ACTIONS or tasks < _LEAST_TASKS or evidence.is_solved:
        return None
    action, count = actions.most_common(1)[0]
    now = count / actions.total()
    if now < _MOST_SAME:
        return None
    lines = [
        f"{share(now)} of {actions.total()} actions on {tasks} tasks are "
        f"{short_repr(action, LONGEST)}"
    ]
    before = _texts(evidence.early)
    if before:
        lines.append(f"{share(before[action] / before.total())} at the beginning of training")
    return Signs(tuple(lines), steps_of(sets), lambda one: _only(one, action))


def _only(one: Contents, action: str) -> Iterable[Rollout]:
    """The rollouts that consist of this action, the longest first."""
    texts = {id(r): [step.action.strip() for step in actions_of([r])] for r in one.live}
    alike = [rollout for rollout in one.live if set(texts[id(rollout)]) <= {action}]
    return sorted(alike, key=lambda rollout: -len(texts[id(rollout)]))


def _texts(sets: Sequence[Contents]) -> Counter[str]:
    return Counter(step.action.strip() for one in sets for step in actions_of(one.live))
