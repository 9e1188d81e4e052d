"""A reward that falls, and one that pays for something else than winning."""

from collections.abc import Iterable, Iterator

from agentsgym.report.doctor.curve import Curve, rise
from agentsgym.report.doctor.evidence import Evidence, PlayedSet, has_won, named, share
from agentsgym.report.doctor.finding import Finding
from agentsgym.types import Rollout

_LEAST_FALL = 0.03
"""Of the win rate."""


def reward_falls(evidence: Evidence) -> Finding | None:
    """The policy becomes worse: in training, or on the held-out tasks."""
    reward = evidence.curve("reward")
    found = [*_fall(reward), *_worse(evidence)]
    if not found:
        return None
    return Finding(
        "reward_falls",
        "Training makes the policy worse.",
        tuple(found),
        (
            "the other faults that are named here: mend them first",
            "a lower train.learning_rate, a KL penalty (train.beta above 0)",
            "a larger batch, so that an update rests on more groups",
        ),
        named(evidence.recent, lambda one: sorted(one.live, key=lambda r: r.final_reward)),
        None if reward is None else (reward.early.first, reward.recent.last),
    )


def _fall(reward: Curve | None) -> Iterator[str]:
    if reward is not None and rise(reward) < 0:
        yield (
            f"reward {reward.early.mean:.3g} in {reward.early}, {reward.recent.mean:.3g} in "
            f"{reward.recent}"
        )


def _worse(evidence: Evidence) -> Iterator[str]:
    """Held-out tasks before and after, if their intervals are apart."""
    before, after = (evidence.evaluations.get(name) for name in ("before", "after"))
    if before is None or after is None:
        return
    low, high = before.reward_ci95[0], after.reward_ci95[1]
    if low is not None and high is not None and high < low:
        yield (
            f"reward on held-out tasks {before.reward:.3g} before and {after.reward:.3g} after "
            "training, with intervals that do not meet"
        )


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
