"""Groups whose rollouts all earn the same."""

from collections.abc import Iterable

from agentsgym.credit.table import differ
from agentsgym.report.doctor.evidence import Evidence, Group, Signs, comparable, has_won, share
from agentsgym.report.doctor.looking import steps_of
from agentsgym.report.stored import Contents
from agentsgym.types import Rollout

_MOST_WITHOUT_SIGNAL = 0.5
"""Share of groups that may have no signal, those with nothing to learn not counted."""


def find(evidence: Evidence) -> Signs | None:
    """Most groups have one reward, and too little of it."""
    sets = evidence.recent
    every = [members for one in sets for members in comparable(one)]
    without = [members for members in every if _is_equal(members)]
    stuck = [members for members in without if not _is_learned(members, evidence)]
    if not every or len(stuck) / len(every) < _MOST_WITHOUT_SIGNAL:
        return None
    rewards = sorted(members[0].final_reward for members in stuck)
    lines = [
        f"{len(stuck)} of {len(every)} groups that were read have one reward (median "
        f"{rewards[len(rewards) // 2]:.3g}); {len(without) - len(stuck)} more are won"
    ]
    reward, best = evidence.curve("reward"), evidence.reference
    if reward is not None and best is not None:
        lines.append(
            f"reward {reward.recent.mean:.3g} in {reward.recent}; the reference player's {best:.3g}"
        )
    silent = evidence.curve("groups_without_signal")
    if silent is not None:
        lines.append(
            f"groups_without_signal is {share(silent.recent.mean)} in {silent.recent}, and was "
            f"{share(silent.values[0])} in step {silent.steps[0]}"
        )

    def look_at(one: Contents) -> Iterable[Rollout]:
        groups = (members for members in comparable(one) if _is_equal(members))
        return (members[0] for members in groups if not _is_learned(members, evidence))

    return Signs(tuple(lines), steps_of(sets), look_at)


def _is_equal(members: Group) -> bool:
    return not differ(rollout.final_reward for rollout in members)


def _is_learned(members: Group, evidence: Evidence) -> bool:
    """Whether a group that earns the same has nothing to learn: all of it is won (of an environment
    without wins: it earns the run's highest reward), and that is enough."""
    wins = [has_won(rollout) for rollout in members]
    best = evidence.highest
    reward = members[0].final_reward
    won = best is not None and reward >= best if set(wins) == {None} else all(wins)
    least = evidence.enough
    return won and (least is None or evidence.is_solved or reward >= least)
