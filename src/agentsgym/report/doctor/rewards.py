"""What goes wrong with rewards: they pay for something else, or are all the same."""

from collections.abc import Iterable, Iterator

from agentsgym.evaluation import Evaluation
from agentsgym.report.doctor.evidence import (
    Evidence,
    Fault,
    Group,
    comparable,
    examples,
    has_won,
    rise,
    share,
)
from agentsgym.report.stored import Contents
from agentsgym.types import Rollout

_LEAST_WON = 0.95


def reference_loses(evidence: Evidence) -> Fault | None:
    """Best known play wins under 95 % of the held-out tasks, or earns no more than the model before
    training."""
    lines = [
        line
        for label, figures in evidence.evaluations.items()
        for name, part in _parts(figures)
        for line in _reference_line(label, name, part)
    ]
    if not lines:
        return None
    return Fault(
        "The reference player does not win: the tasks, limits or rewards are in doubt.",
        tuple(dict.fromkeys(lines)),
        (
            f"`agentsgym eval agent:optimal --env {evidence.env} --output DIR` with the run's "
            "settings, and its lost games: `agentsgym view DIR`",
            "more steps (max_steps_per_episode), or tasks that can be won with those there are",
            f"`agentsgym check {evidence.env}`",
        ),
    )


def _parts(figures: Evaluation) -> Iterator[tuple[str, Evaluation]]:
    yield from figures.environments.items() or [("", figures)]


def _reference_line(label: str, name: str, figures: Evaluation) -> Iterator[str]:
    reference, reward = figures.reference, figures.reward
    of = f"{name}: " if name else ""
    if reference is None or reward is None:
        return
    if figures.win_rate == reward and reference < _LEAST_WON:
        yield f"{of}best known play wins {share(reference)} of the held-out tasks"
    elif label == "before" and reference <= reward:
        yield (
            f"{of}best known play earns {reference:.3g} on the held-out tasks, and the model "
            f"{reward:.3g} before training"
        )


_LEAST_FALL = 0.03
"""Of the win rate."""


def reward_against_wins(evidence: Evidence) -> Fault | None:
    """The reward rises and the win rate falls by 3 points, both by more than two standard
    errors."""
    reward, wins = evidence.curve("reward"), evidence.curve("win_rate")
    if reward is None or wins is None or rise(reward) <= 0 or rise(wins) > -_LEAST_FALL:
        return None
    return Fault(
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
        examples(evidence.recent, _best_lost),
        (wins.early.first, wins.recent.last),
    )


def _best_lost(one: Contents) -> Iterable[Rollout]:
    """The lost rollouts, those with the highest reward first."""
    lost = [rollout for rollout in one.live if has_won(rollout) is False]
    return sorted(lost, key=lambda rollout: -rollout.final_reward)


_MOST_WITHOUT_SIGNAL = 0.5
"""Share of groups that may have no signal, those with nothing to learn not counted."""


def no_signal(evidence: Evidence) -> Fault | None:
    """Half of the groups have rollouts that all earn the same, and not because they all win with at
    least 90 % of the reference's reward."""
    sets = evidence.recent
    groups = [members for one in sets for members in comparable(one)]
    without = [members for members in groups if _is_equal(members)]
    stuck = [members for members in without if not _is_learned(members, evidence)]
    if not groups or len(stuck) / len(groups) < _MOST_WITHOUT_SIGNAL:
        return None
    rewards = sorted(members[0].final_reward for members in stuck)
    middle = rewards[len(rewards) // 2]
    worst = middle <= min(r.final_reward for one in sets for r in one.live)
    lost = worst and not all(has_won(member) for members in stuck for member in members)
    return Fault(
        "Most groups give no learning signal: their rollouts all earn the same, and too little.",
        (
            f"{len(stuck)} of {len(groups)} groups that were read have one reward (median "
            f"{middle:.3g}); {len(without) - len(stuck)} more are won",
            *_of_reference(evidence),
            *_signal_over_time(evidence),
        ),
        (*(_HAD_SIGNAL if _had_signal(evidence) else _LOST if lost else ()), *_BOTH),
        examples(sets, lambda one: _stuck(one, evidence)),
        (sets[-1].of.step + 1, sets[0].of.step + 1),
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


def _of_reference(evidence: Evidence) -> Iterator[str]:
    curve, best = evidence.curve("reward"), evidence.reference
    if curve is not None and best is not None:
        yield f"reward {curve.recent.mean:.3g} in {curve.recent}; the reference player's {best:.3g}"


def _signal_over_time(evidence: Evidence) -> Iterator[str]:
    curve = evidence.curve("groups_without_signal")
    if curve is not None:
        yield (
            f"groups_without_signal is {share(curve.recent.mean)} in {curve.recent}, and was "
            f"{share(curve.values[0])} in step {curve.steps[0]}"
        )


def _had_signal(evidence: Evidence) -> bool:
    curve = evidence.curve("groups_without_signal")
    return curve is not None and curve.values[0] < _MOST_WITHOUT_SIGNAL


def _is_equal(members: Group) -> bool:
    return len({rollout.final_reward for rollout in members}) == 1


def _is_learned(members: Group, evidence: Evidence) -> bool:
    """Whether a group that earns the same has nothing to learn: all of it is won (of an environment
    without wins: it earns the run's highest reward), and that is enough."""
    wins = [has_won(rollout) for rollout in members]
    best = evidence.highest
    reward = members[0].final_reward
    won = best is not None and reward >= best if set(wins) == {None} else all(wins)
    least = evidence.enough
    return won and (least is None or evidence.is_solved or reward >= least)


def _stuck(one: Contents, evidence: Evidence) -> Iterable[Rollout]:
    return (m[0] for m in comparable(one) if _is_equal(m) and not _is_learned(m, evidence))
