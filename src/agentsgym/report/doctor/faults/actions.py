"""What is said and done: what nobody reads, what never changes, what ignores what was read."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentsgym.credit.table import differ
from agentsgym.evaluation.dependence import dependence
from agentsgym.report.doctor.evidence import (
    LONGEST,
    LOOK_AT,
    Evidence,
    Signs,
    actions_of,
    share,
    steps_of,
)
from agentsgym.report.stored import Contents
from agentsgym.rollout.failures import last_line
from agentsgym.types import Rollout
from agentsgym.types.text import short_repr

_MOST_SAME, _LEAST_ACTIONS, _LEAST_TASKS = 0.9, 30, 2
# Chance alone gives eight tasks of two kinds the same text once in 128.
_TASKS = 8
# A player that uses what it reads shares half of its entropy and more with it, one that does not 0.
# Of actions that are nearly all unlike, chance leaves too little room to see either.
_LEAST_USE, _LEAST_CHOICE = 0.1, 0.3


def truncated_actions(evidence: Evidence) -> Iterator[str]:
    """The cap."""
    train = evidence.config.get("train")
    cap = train.get("max_action_tokens") if isinstance(train, Mapping) else None
    if cap is not None:
        yield f"train.max_action_tokens is {cap}"


def malformed_actions(evidence: Evidence) -> Iterator[str]:
    """The most frequent ones."""
    live = (rollout for one in evidence.recent for rollout in one.live)
    counts = Counter(step.action for step in actions_of(live) if step.unread)
    if counts:
        most = ", ".join(f"{short_repr(a, LONGEST)} ({n})" for a, n in counts.most_common(3))
        yield f"the most frequent: {most}"


def rollouts_fail(evidence: Evidence) -> Iterator[str]:
    """The most frequent error of each environment."""
    counts: dict[str, Counter[str]] = {}
    for one in evidence.recent:
        for rollout in LOOK_AT["failed"](one):
            line = last_line(str(rollout.error))
            counts.setdefault(rollout.env_class_path, Counter())[line] += 1
    for name, errors in counts.items():
        error, count = errors.most_common(1)[0]
        yield f"{name}: {short_repr(error, 160)} ({count} of {errors.total()} that were read)"


def one_action(evidence: Evidence) -> Signs | None:
    """Nearly all actions are the same."""
    sets = evidence.recent
    actions = _texts(sets)
    tasks = len({(one.of.id, rollout.group) for one in sets for rollout in one.live})
    if actions.total() < _LEAST_ACTIONS or tasks < _LEAST_TASKS:
        return None
    action, count = actions.most_common(1)[0]
    if count < _MOST_SAME * actions.total():
        return None
    line = (
        f"{share(count / actions.total())} of {actions.total()} actions on {tasks} tasks are "
        f"{short_repr(action, LONGEST)}"
    )
    if before := _texts(evidence.early):
        line += f", {share(before[action] / before.total())} at the beginning of training"

    def only(one: Contents) -> Iterable[Rollout]:
        return (r for r in one.live if {s.action.strip() for s in actions_of([r])} <= {action})

    return Signs((line,), steps_of(sets), only)


def _texts(sets: Sequence[Contents]) -> Counter[str]:
    return Counter(step.action.strip() for one in sets for step in actions_of(one.live))


def observation_missing(evidence: Evidence) -> Signs | None:
    """After equal actions every task reads alike, and equal actions earn different rewards on
    enough tasks, though not on the same task, where that were chance. A guessing game opens alike
    on every task; its answers differ."""
    reads: dict[tuple[str, ...], set[str]] = defaultdict(set)
    tasks: dict[tuple[str, ...], set[object]] = defaultdict(set)
    earns: dict[tuple[str, ...], dict[object, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in evidence.played:
        for rollout in one.live:
            said: tuple[str, ...] = ()
            task = one.of.id, rollout.group
            for step in actions_of([rollout]):
                reads[said].add(step.observation)
                tasks[said].add(task)
                said = (*said, step.action)
            earns[said][task].append(rollout.final_reward)
    chance = any(differ(one) for of in earns.values() for one in of.values())
    if chance or any(len(texts) > 1 for texts in reads.values()):
        return None
    paid = [
        every
        for said, of in earns.items()
        if differ(every := [one[0] for one in of.values()])
        and all(len(tasks[said[:count]]) >= _TASKS for count in range(len(said)))
    ]
    if not paid:
        return None
    lines = (
        f"{len(tasks[()])} tasks open with the same text, and after equal actions read the same",
        f"{len(paid)} of {len(earns)} sequences of actions earn different rewards on different "
        f"tasks, {min(map(min, paid)):.3g} to {max(map(max, paid)):.3g}",
    )
    return Signs(lines, steps_of(evidence.recent))


def observation_unused(evidence: Evidence) -> Signs | None:
    """The action hardly depends on the last text that was read, over steps of the same number.
    Where nearly every text is read once, shuffled actions seem to depend on it too, and nothing can
    be said."""
    places: dict[tuple[str, int, int], list[tuple[str, str]]] = defaultdict(list)
    for one in evidence.recent:
        for rollout in one.live:
            for episode in rollout.episodes:
                for step in episode.actions:
                    place = one.of.id, episode.index, step.index
                    places[place].append((step.observation, step.action))
    told = [pairs for pairs in places.values() if len({text for text, _ in pairs}) > 1]
    found = dependence(told)
    if found is None or found.count < _LEAST_ACTIONS or found.room < _LEAST_CHOICE * found.most:
        return None
    if found.shared - found.chance + found.error > _LEAST_USE * found.room:
        return None
    line = (
        f"what was read tells {found.shared:.3f} nats about the action, {found.chance:.3f} ± "
        f"{found.error:.2g} if actions are shuffled; the entropy of {found.count} actions is "
        f"{found.entropy:.2f}"
    )
    return Signs((line,), steps_of(evidence.recent))
