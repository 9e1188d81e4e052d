"""The rollouts of a set that show a fault."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from agentsgym.report.stored import Contents
from agentsgym.types import Rollout, Step

LONGEST = 60
"""Characters of an action that are shown."""


def actions_of(rollouts: Iterable[Rollout]) -> Iterator[Step]:
    """The actions of rollouts."""
    return (step for r in rollouts for episode in r.episodes for step in episode.actions)


def steps_of(sets: Sequence[Contents]) -> tuple[int, int]:
    """The optimizer steps of generations, of which the newest is first."""
    return sets[-1].of.step + 1, sets[0].of.step + 1


def _most_rows(one: Contents) -> Iterable[Rollout]:
    broken = [r for r in one.live if any(row.begins == "template" for row in r.rows)]
    return sorted(broken, key=lambda rollout: -len(rollout.rows))


LOOK_AT: Mapping[str, Callable[[Contents], Iterable[Rollout]]] = {
    "failed": lambda one: (line.rollout for line in one.lines if line.rollout.failed),
    "unread": lambda one: (r for r in one.live if any(step.unread for step in actions_of([r]))),
    "truncated": lambda one: (
        r for r in one.live if any(s.truncated for episode in r.episodes for s in episode.steps)
    ),
    # Those of which the viewer shows the trainer's numbers.
    "recorded": lambda one: (r for r in one.live if r.session_id in one.records),
    "most_rows": _most_rows,
}
"""By the words of `faults.yaml`."""
