"""What is rewarded is not winning."""

from collections.abc import Iterable

from agentsgym.report.doctor.evidence import Evidence, Signs, has_won, rise, share
from agentsgym.report.stored import Contents
from agentsgym.types import Rollout

_LEAST_FALL = 0.03
"""Of the win rate."""


def find(evidence: Evidence) -> Signs | None:
    """The reward rises and wins fall."""
    reward, wins = evidence.curve("reward"), evidence.curve("win_rate")
    if reward is None or wins is None or rise(reward) <= 0 or rise(wins) > -_LEAST_FALL:
        return None
    lines = (
        f"reward {reward.early.mean:.3g} in {reward.early}, {reward.recent.mean:.3g} in "
        f"{reward.recent}",
        f"win rate {share(wins.early.mean)} and then {share(wins.recent.mean)}",
    )
    return Signs(lines, (wins.early.first, wins.recent.last), _best_lost)


def _best_lost(one: Contents) -> Iterable[Rollout]:
    """The lost rollouts, those with the highest reward first."""
    lost = [rollout for rollout in one.live if has_won(rollout) is False]
    return sorted(lost, key=lambda rollout: -rollout.final_reward)
