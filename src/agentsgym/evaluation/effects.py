"""The effect of an action, measured: what the policy earns from the state after it, less what it
earns from the state before, in plays with common noise."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from agentsgym.evaluation.intervals import Interval, cluster_mean, clusters_alike, spread_interval
from agentsgym.types import Rollout, Step


@dataclass(frozen=True, slots=True)
class Alternative:
    """What the policy also does in a state: in `plays` of all plays from there, which earned
    `reward` on average."""

    action: str
    plays: int
    reward: float


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of answer number `node` of the rollout `session_id` on its final reward, with its
    95 % `interval` over pairs of plays: None if fewer than two pairs were played to the end, or if
    they all differ alike and rewards have no bounds; `effect` is NaN without any. `alternatives`
    has what the policy does in that state, the most frequent first."""

    session_id: str
    group: int
    rollout: int
    episode: int
    step: int
    node: int
    action: str
    informing: bool | None
    effect: float
    interval: Interval | None
    pairs: int
    alternatives: tuple[Alternative, ...]

    @property
    def matters(self) -> bool:
        """Whether the interval is known and has no zero."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)


def effect_of(
    rollout: Rollout,
    node: int,
    before: Mapping[int, Rollout],
    after: Mapping[int, Rollout],
    width: float = math.inf,
) -> Effect:
    """The effect of answer number `node`. `before` has branches of the rollout that play on instead
    of it, by the number of their noise, and `after` those that play on after it with the same
    noise; one whose branch before gave the same answer would be equal to that, and is not played.
    After the last answer of the rollout comes its own end. Rewards differ by at most `width`."""
    step, last = rollout.nodes[node], node + 1 == len(rollout.nodes)
    differences = {}
    for noise, one in before.items():
        if same_answer(rollout, node, one):
            reward = one.final_reward
        else:
            reward = rollout.final_reward if last else after[noise].final_reward
        differences[noise] = reward - one.final_reward
    known = [value for _, value in sorted(differences.items()) if math.isfinite(value)]
    informing = step.info.get("informing")
    return Effect(
        session_id=rollout.session_id,
        group=rollout.group,
        rollout=rollout.index,
        episode=_episode_of(rollout, step),
        step=step.index,
        node=node,
        action=step.action,
        informing=None if informing is None else bool(informing),
        effect=math.fsum(known) / len(known) if known else math.nan,
        interval=_interval(known, width),
        pairs=len(known),
        alternatives=_alternatives(before.values(), node),
    )


def _interval(values: list[float], width: float) -> Interval | None:
    """Student's; of values that are all alike, `spread_interval`."""
    clusters = range(len(values))
    if len(values) < 2 or (math.isinf(width) and clusters_alike(values, clusters)):
        return None
    return spread_interval(cluster_mean(values, clusters), values, clusters, -width, width)


def same_answer(one: Rollout, node: int, other: Rollout) -> bool:
    """Whether two rollouts gave the same answer number `node`, token by token."""
    if node >= len(other.nodes):
        return False
    (_, acts, stop), (_, begins, ends) = one.at[node].tolist(), other.at[node].tolist()
    same = np.array_equal(one.token_ids[acts:stop], other.token_ids[begins:ends])
    return same and one.nodes[node].answer == other.nodes[node].answer


def _episode_of(rollout: Rollout, step: Step) -> int:
    return next(e.index for e in rollout.episodes if any(one is step for one in e.nodes))


def _alternatives(branches: Iterable[Rollout], node: int) -> tuple[Alternative, ...]:
    rewards: dict[str, list[float]] = {}
    for one in branches:
        if not one.failed:
            rewards.setdefault(one.nodes[node].action, []).append(one.final_reward)
    found = (Alternative(a, len(r), math.fsum(r) / len(r)) for a, r in rewards.items())
    return tuple(sorted(found, key=lambda one: (-one.plays, one.action)))
