"""A reward that pays for something else than winning."""

from collections.abc import Iterable

from agentsgym.report.doctor.curve import rise
from agentsgym.report.doctor.evidence import Evidence, PlayedSet, has_won, named, share
from agentsgym.report.doctor.finding import Finding
from agentsgym.types import Rollout

_LEAST_FALL = 0.03
"""Of the win rate."""


def reward_against_wins(evidence: Evidence) -> Finding | None:
    """The reward rises while the win rate falls."""
    reward, wins = evidence.curve("reward"), evidence.curve("win_rate")
    if reward is None or wins is None or rise(reward) <= 0 or rise(wins) > -_LEAST_FALL:
        return None
    return Finding(
        "reward_against_wins",
        "The reward rises while wins fall: it pays for something else than winning.",
        (
            f"reward {reward.early.mean:.3g} in {reward.early}, {reward.recent.mean:.3g} in "
            f"{reward.recent}",
            f"win rate {share(wins.early.mean)} and then {share(wins.recent.mean)}",
        ),
        (
            "look at which steps of the rollouts below are rewarded, and lower what rewards them",
            "let the reward be the win alone, or larger than all that is earned on the way",
        ),
        named(evidence.recent, _best_lost),
        (wins.early.first, wins.recent.last),
    )


def _best_lost(one: PlayedSet) -> Iterable[Rollout]:
    """The lost rollouts, those with the highest reward first."""
    lost = [rollout for rollout in one.live if has_won(rollout) is False]
    return sorted(lost, key=lambda rollout: -rollout.final_reward)
