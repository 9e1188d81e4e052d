"""A policy that always says the same."""

from collections import Counter
from collections.abc import Iterable, Sequence

from agentsgym.report.doctor.evidence import Evidence, PlayedSet, named, share
from agentsgym.report.doctor.finding import Finding
from agentsgym.types import Rollout

_MOST, _LEAST_ACTIONS, _LEAST_TASKS = 0.9, 30, 2
_LONGEST = 60


def one_action(evidence: Evidence) -> Finding | None:
    """Nearly all actions, on whatever task, are the same text, and the game is not won by it."""
    sets = evidence.recent
    said = _said(sets)
    if sum(said.values()) < _LEAST_ACTIONS or _tasks(sets) < _LEAST_TASKS or evidence.is_solved:
        return None
    action, count = said.most_common(1)[0]
    now = count / said.total()
    if now < _MOST:
        return None
    before = _said(evidence.early)
    text = action if len(action) <= _LONGEST else f"{action[:_LONGEST]}…"
    return Finding(
        "one_action",
        "The policy has collapsed: nearly every action is the same.",
        (
            f"{share(now)} of {said.total()} actions on {_tasks(sets)} tasks are {text!r}",
            *(
                [f"{share(before[action] / before.total())} at the beginning of training"]
                if before
                else []
            ),
        ),
        (
            "an earlier checkpoint, with a lower train.learning_rate",
            "a KL penalty (train.beta above 0), a higher train.temperature",
            "the reward: does this action earn something on every task?",
        ),
        named(sets, lambda one: _only(one, action)),
        (sets[-1].step + 1, sets[0].step + 1),
    )


def _said(sets: Sequence[PlayedSet]) -> Counter[str]:
    return Counter(
        step.action.strip()
        for one in sets
        for rollout in one.live
        for episode in rollout.episodes
        for step in episode.actions
    )


def _tasks(sets: Sequence[PlayedSet]) -> int:
    return len({(one.name, rollout.group) for one in sets for rollout in one.live})


def _only(one: PlayedSet, action: str) -> Iterable[Rollout]:
    """The rollouts that consist of this action, the longest first."""
    found = [
        rollout
        for rollout in one.live
        if all(s.action.strip() == action for e in rollout.episodes for s in e.actions)
    ]
    return sorted(found, key=lambda rollout: -sum(len(e.actions) for e in rollout.episodes))
