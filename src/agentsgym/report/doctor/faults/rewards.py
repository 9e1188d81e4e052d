"""What is earned, and what credit the actions get for it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from agentsgym.credit.table import differ
from agentsgym.evaluation.metrics import scored
from agentsgym.report.doctor.evidence import (
    Evidence,
    Group,
    Signs,
    actions_of,
    comparable,
    has_won,
    share,
    steps_of,
)
from agentsgym.report.stored import Contents
from agentsgym.types import Rollout
from agentsgym.types.rows import chosen

# Of 30 rollouts one in ten that earns otherwise would be seen with 96 %.
_LEAST_ROLLOUTS = 30
# A group of 8 plays each of three equally likely combinations with 96 %, each of six with 77 %.
_COVERED, _FREQUENT, _LEAST_GROUPS = 0.75, 0.05, 10
_MOST_LIMITED = 0.5
_LEAST_CREDITED = 0.01
# Baselines make signs differ: even one winner in 16 leaves 6 % of one sign.
_LEAST_ADVANTAGES, _MOST_OF_A_SIGN = 50, 0.99
_ENOUGH_SIGNAL, _LARGER, _SIGNAL_OF_LARGER = 0.5, 16, 2 / 3
# A run ended at 0.76 of the best play: 17 of 55 groups earned the same and too little, 38 were won.
_MOST_WITHOUT_SIGNAL, _MOST_OF_UNLEARNED, _LEAST_UNLEARNED = 0.5, 0.9, 0.2


def reward_constant(evidence: Evidence) -> Signs | None:
    """No two rollouts earn different rewards, those with malformed actions aside."""
    live = ((one.of.id, rollout) for one in evidence.played for rollout in one.live)
    read = [(name, r) for name, r in live if not any(s.unread for s in actions_of([r]))]
    rewards, tasks = [r.final_reward for _, r in read], {(name, r.group) for name, r in read}
    if len(rewards) < _LEAST_ROLLOUTS or len(tasks) < 2 or differ(rewards):
        return None
    lines = [
        f"each of {len(rewards)} readable rollouts on {len(tasks)} tasks earns {rewards[0]:.3g}"
    ]
    if evidence.reference is not None:
        lines.append(f"best known play earns {evidence.reference:.3g}")
    return Signs(tuple(lines), steps_of(evidence.recent or evidence.early))


def actions_missing(evidence: Evidence) -> Signs | None:
    """Each group plays what anybody plays (the actions of a rollout, in any order), and the best of
    a group is not good enough, at the end neither."""
    groups = [m for one in evidence.early or evidence.recent for m in comparable(one)]
    late = [m for one in evidence.recent for m in comparable(one)] or groups
    played = [[frozenset(s.action for s in actions_of([r])) for r in members] for members in groups]
    every = [actions for members in played for actions in members]
    kinds = {kind for kind in every if every.count(kind) >= _FREQUENT * len(every)}
    least = evidence.enough
    if len(groups) < _LEAST_GROUPS or least is None or reward_constant(evidence):
        return None
    if len(kinds) < 2:  # the order may matter, or how often an action is played
        return None
    covered = sum(len(kinds & set(members)) for members in played) / len(kinds) / len(groups)
    best, error = _best_of(groups)
    if covered < _COVERED or any(b + 2 * e >= least for b, e in map(_best_of, (groups, late))):
        return None
    line = (
        f"{len(frozenset.union(*kinds))} actions are played, and {share(covered)} of their "
        f"combinations in each of {len(groups)} groups; the best of a group earns {best:.3g} ± "
        f"{2 * error:.2g}, best known play {evidence.reference:.3g}"
    )
    return Signs((line,), steps_of(evidence.recent))


def _best_of(groups: Sequence[Group]) -> tuple[float, float]:
    """The mean reward of the best of each group, and its standard error."""
    best = [max(rollout.final_reward for rollout in members) for members in groups]
    return float(np.mean(best)), float(np.std(best)) / math.sqrt(len(best))


def episodes_too_short(evidence: Evidence) -> Signs | None:
    """Most episodes end at the limit of steps, and earn less than those that end before."""
    played = (rollout for one in evidence.recent for rollout in one.live)
    episodes = [episode for rollout in played for episode in scored(rollout)]
    limited = [e.reward for e in episodes if e.stop_reason == "max_steps"]
    others = [e.reward for e in episodes if e.stop_reason != "max_steps"]
    if len(limited) < max(1, _MOST_LIMITED * len(episodes)):
        return None
    ends = sum(limited) / len(limited)
    error = 2 * np.std(others) / math.sqrt(len(others)) if others else 0.0
    if differ(limited + others) and others and ends >= np.mean(others) - error:
        return None
    steps = max(len(e.actions) for e in episodes)
    line = (
        f"{share(len(limited) / len(episodes))} of {len(episodes)} episodes end after {steps} steps"
        f" at the limit, and earn {ends:.3g}; the others earn {np.mean(others or [0.0]):.3g}"
    )
    return Signs((line,), steps_of(evidence.recent))


def reward_unreached(evidence: Evidence) -> Signs | None:
    """Groups differ in reward, and their actions have no advantage, or those of free shots none."""
    shares = {}
    for name, free in (("scored episodes", False), ("free shots", True)):
        credit = [a for one in evidence.recent for a in _advantages(one, free=free, differing=True)]
        if credit:
            shares[name] = sum(a != 0 for a in credit) / len(credit), len(credit)
    if all(part >= _LEAST_CREDITED for part, _ in shares.values()):
        return None
    lines = (
        f"{share(part)} of {count} actions in {name} have an advantage"
        for name, (part, count) in shares.items()
    )
    return Signs(tuple(lines), steps_of(evidence.recent))


def one_sign(evidence: Evidence) -> Signs | None:
    """The advantages are all above 0, or all below it."""
    every = [a for one in evidence.recent for a in _advantages(one) if a]
    above = sum(a > 0 for a in every) / max(1, len(every))
    if len(every) < _LEAST_ADVANTAGES or 1 - _MOST_OF_A_SIGN < above < _MOST_OF_A_SIGN:
        return None
    return Signs((f"{share(above)} of {len(every)} are above 0",), steps_of(evidence.recent))


def _advantages(
    one: Contents, *, free: bool | None = None, differing: bool = False
) -> Iterator[float]:
    """The mean advantage of each action: of those in free shots or not in them, of groups whose
    rewards differ."""
    kept = {m[0].group for m in comparable(one) if differ(r.final_reward for r in m)}
    for line in one.lines:
        rollout = line.rollout
        weights = {episode.index: episode.score_weight for episode in rollout.episodes}
        if line.advantages is None or rollout.failed or (differing and rollout.group not in kept):
            continue
        for row, values in zip(rollout.rows, line.advantages, strict=True):
            for span, at in zip(row.spans, chosen(row.spans, row.supports), strict=True):
                if free in (None, weights[span.episode] == 0) and len(at):
                    yield float(values[at].mean())


def groups_too_small(evidence: Evidence) -> Signs | None:
    """Two rollouts of a task differ with probability 2p(1 − p), some of n with 1 − pⁿ − (1 − p)ⁿ,
    unless tasks are unlike: then fewer groups have a signal than that, and larger ones hardly
    more."""
    groups = [members for one in evidence.recent for members in comparable(one)]
    pairs = [(a.final_reward, b.final_reward) for m in groups for a, b in pairwise(m)]
    size = max((len(members) for members in groups), default=0)
    if len(groups) < _LEAST_GROUPS or size >= _LARGER:
        return None
    unlike = min(0.5, sum(differ(pair) for pair in pairs) / len(pairs))
    rare = (1 - math.sqrt(1 - 2 * unlike)) / 2
    signal = sum(not _is_equal(members) for members in groups) / len(groups)
    expected, larger = (1 - rare**n - (1 - rare) ** n for n in (size, _LARGER))
    unlucky = expected - 2 * math.sqrt(expected * (1 - expected) / len(groups))
    if not unlucky <= signal < _ENOUGH_SIGNAL or larger < _SIGNAL_OF_LARGER:
        return None
    line = (
        f"{share(signal)} of {len(groups)} groups of {size} have a signal; two rollouts of a task "
        f"differ in {share(unlike)}, so {share(larger)} of groups of {_LARGER} would have one"
    )
    return Signs((line,), steps_of(evidence.recent))


def no_signal(evidence: Evidence) -> Signs | None:
    """Most groups, or most with something to learn, have one reward each, and too little of it."""
    sets = evidence.recent
    every = [members for one in sets for members in comparable(one)]
    without = [members for members in every if _is_equal(members)]
    stuck = [members for members in without if not _is_learned(members, evidence)]
    if not stuck or reward_constant(evidence):
        return None
    unlearned = len(every) - len(without) + len(stuck)
    ended = not evidence.is_solved and len(stuck) >= _MOST_OF_UNLEARNED * unlearned
    if len(stuck) < (_LEAST_UNLEARNED if ended else _MOST_WITHOUT_SIGNAL) * len(every):
        return None
    rewards = sorted(members[0].final_reward for members in stuck)
    line = (
        f"{len(stuck)} of {len(every)} groups that were read have one reward (median "
        f"{rewards[len(rewards) // 2]:.3g}); {len(without) - len(stuck)} more are won"
    )

    def look_at(one: Contents) -> Iterable[Rollout]:
        groups = (members for members in comparable(one) if _is_equal(members))
        return (members[0] for members in groups if not _is_learned(members, evidence))

    return Signs((line,), steps_of(sets), look_at)


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
