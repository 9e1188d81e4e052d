"""Groups whose rollouts all earn the same: the group's advantages are zero."""

from collections.abc import Iterable, Iterator

from agentsgym.report.doctor.evidence import Evidence, Group, PlayedSet, has_won, named, share
from agentsgym.report.doctor.finding import Finding
from agentsgym.types import Rollout

_MOST = 0.5
"""Share of groups that may have no signal, those that are all won not counted."""


def no_signal(evidence: Evidence) -> Finding | None:
    """Most groups earn one reward, and not because they all win."""
    sets = evidence.recent
    groups = [members for one in sets for members in one.groups]
    if not groups:
        return None
    best = _best(evidence)
    without = [members for members in groups if _is_equal(members)]
    unsolved = [members for members in without if not _is_won(members, best)]
    if len(unsolved) / len(groups) < _MOST:
        return None
    rewards = sorted(members[0].final_reward for members in unsolved)
    middle = rewards[len(rewards) // 2]
    steps = sets[-1].step + 1, sets[0].step + 1
    lost = middle <= min(r.final_reward for one in sets for r in one.live)
    return Finding(
        "no_signal",
        "Most groups give no learning signal: their rollouts all earn the same, without winning.",
        (
            f"{len(unsolved)} of {len(groups)} groups that were read have one reward (median "
            f"{middle:.3g}); {len(without) - len(unsolved)} more are all won",
            *_logged(evidence),
        ),
        (*(_HAD_SIGNAL if _had_signal(evidence) else _LOST if lost else ()), *_BOTH),
        named(sets, lambda one: _of_groups(one, best)),
        steps,
    )


_HAD_SIGNAL = (
    "an earlier checkpoint and a lower train.learning_rate: at the beginning there was signal",
)
_LOST = (
    "easier tasks, or a reward for progress on the way, so that some rollouts of a group win",
    "a warm start on games of a better player (warm_start.source=teacher)",
)
_BOTH = (
    "more rollouts of each task (train.num_generations), a higher train.temperature",
    "train.zero_signal_groups=resample, which plays other tasks instead",
)


def _logged(evidence: Evidence) -> Iterator[str]:
    curve = evidence.curve("groups_without_signal")
    if curve is not None:
        yield (
            f"groups_without_signal is {share(curve.recent.mean)} in {curve.recent}, and was "
            f"{share(curve.values[0])} in step {curve.steps[0]}"
        )


def _had_signal(evidence: Evidence) -> bool:
    curve = evidence.curve("groups_without_signal")
    return curve is not None and curve.values[0] < _MOST


def _best(evidence: Evidence) -> float | None:
    """The highest reward of the run; None if there is only one."""
    rewards = [r.final_reward for one in evidence.played for r in one.live]
    return max(rewards) if rewards and max(rewards) > min(rewards) else None


def _is_equal(members: Group) -> bool:
    return len({rollout.final_reward for rollout in members}) == 1


def _is_won(members: Group, best: float | None) -> bool:
    wins = [has_won(rollout) for rollout in members]
    if any(win is not None for win in wins):
        return all(wins)
    return best is not None and members[0].final_reward >= best


def _of_groups(one: PlayedSet, best: float | None) -> Iterable[Rollout]:
    return (m[0] for m in one.groups if _is_equal(m) and not _is_won(m, best))
