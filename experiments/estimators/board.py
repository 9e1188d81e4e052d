"""The board: every estimator's bias and noise on processes that stress one thing each, exactly.

An estimator that reads more than the group, such as one that divides by the spread of the batch,
can't be enumerated; it is measured on drawn batches of `BATCH` groups.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from experiments.estimators.by_state import PUBLISHED
from experiments.estimators.processes import (
    Groups,
    Move,
    Process,
    compare,
    every_branched_group,
    every_group,
    gradients,
    groups_of,
)

from agentsgym.credit.advantages import credit_steps, find_estimator
from agentsgym.credit.estimator import Estimator
from agentsgym.credit.estimators import ESTIMATORS
from agentsgym.credit.estimators.rloo import rloo
from agentsgym.credit.table import StepTable
from agentsgym.types.rows import Flags, Floats

SIZES = (4, 8, 16)
BATCH, BATCHES = 16, 200
_NOTHING = 1e-9  # of the true gradient
Assign = Callable[[StepTable], Floats]


class Node(NamedTuple):
    """A state, and for each of its actions what it earns, with the next node if there is one."""

    state: str
    branches: "tuple[float | tuple[float, Node], ...]"


def process_of(
    policy: Mapping[str, Sequence[float]], *tasks: Node, weights: Sequence[float] = ()
) -> Process:
    """The process of some trees, one for each task, under a policy (the probabilities of each
    state's actions). With `weights` each step is an episode of that score weight."""
    theta = np.full((len(policy), max(map(len, policy.values()))), -np.inf)
    for row, chances in zip(theta, policy.values(), strict=True):
        row[: len(chances)] = np.log(chances)
    played: list[tuple[tuple[Move, ...], int]] = []

    def walk(node: Node, moves: tuple[Move, ...], task: int) -> None:
        state, depth = list(policy).index(node.state), len(moves)
        episode, step, weight = (depth, 0, weights[depth]) if weights else (0, depth, 1.0)
        for action, branch in enumerate(node.branches):
            reward, after = branch if isinstance(branch, tuple) else (branch, None)
            longer = (*moves, Move(episode, step, state, action, reward, weight))
            if after is None:
                played.append((longer, task))
            else:
                walk(after, longer, task)

    for task, root in enumerate(tasks):
        walk(root, (), task)
    trajectories, owners = zip(*played, strict=True)
    return Process(theta, trajectories, owners)


_HALF = (0.5, 0.5)


@dataclass(frozen=True, slots=True)
class Challenge:
    """A process of the board, and what it stresses."""

    help: str
    process: Process


CHALLENGES: Mapping[str, Challenge] = {
    "late reward": Challenge(
        "the first of two actions decides, and is paid after the second, which changes nothing",
        process_of(
            {"start": (0.3, 0.7), "right": _HALF, "wrong": _HALF},
            Node("start", ((0, Node("right", (1, 1))), (0, Node("wrong", (0, 0))))),
        ),
    ),
    "early luck": Challenge(
        "the first action earns 3 or 0, the second 1 or 0: what came before is noise for it",
        process_of(
            {"first": _HALF, "second": (0.3, 0.7)},
            Node("first", ((3, Node("second", (1, 0))), (0, Node("second", (1, 0))))),
        ),
    ),
    "repeated states": Challenge(
        "a room with a right and a wrong exit; waiting costs 0.1 and leads to the room again, once",
        process_of(
            {"room": (0.4, 0.3, 0.3)}, Node("room", ((-0.1, Node("room", (-0.1, 1, 0))), 1, 0))
        ),
    ),
    "variable length": Challenge(
        "stopping earns 0.1 and ends the episode, going on costs 0.1 and earns 1 the third time",
        process_of(
            {"0": _HALF, "1": _HALF, "2": _HALF},
            Node("0", (0.1, (-0.1, Node("1", (0.1, (-0.1, Node("2", (0.1, 1)))))))),
        ),
    ),
    "trials": Challenge(
        "two scored episodes: a safe arm pays 0.4, a risky one 1 or 0, by task",
        process_of(
            {"start": _HALF, "safe": _HALF, "won": (0.3, 0.7), "lost": (0.6, 0.4)},
            Node("start", ((0.4, Node("safe", (0.4, 1))), (1, Node("won", (0.4, 1))))),
            Node("start", ((0.4, Node("safe", (0.4, 0))), (0, Node("lost", (0.4, 0))))),
            weights=(0.5, 0.5),
        ),
    ),
    "free shots": Challenge(
        "one of two doors pays 1; the free shot before looks, or earns 0.3 that is not scored",
        process_of(
            {"free": (0.3, 0.7), "saw 0": (0.7, 0.3), "saw 1": (0.3, 0.7), "nothing": _HALF},
            Node("free", ((0, Node("saw 0", (1, 0))), (0.3, Node("nothing", (1, 0))))),
            Node("free", ((0, Node("saw 1", (0, 1))), (0.3, Node("nothing", (0, 1))))),
            weights=(0.0, 1.0),
        ),
    ),
    "many actions": Challenge(
        "five actions; the best is taken once in 20 times",
        process_of({"all": (0.05, 0.2, 0.25, 0.25, 0.25)}, Node("all", (1, 0.2, 0, 0, 0))),
    ),
    "partial observation": Challenge(
        "two rooms look alike; which action is right depends on the room",
        process_of(
            {"start": (0.4, 0.6), "room": _HALF},
            Node("start", ((0, Node("room", (1, 0))), (0, Node("room", (0, 0.5))))),
        ),
    ),
}
"""The processes by name."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An estimator on a process, in groups of `size`.

    `error` and `turned` are those of the expected gradient (`Bias`). `noise` is the variance of the
    gradient, rescaled to the true gradient's length, times environment steps, over that of `rloo`
    in groups of 4 (the first size); infinite if the expected gradient has no part of the true one.
    `halves` are the half-widths of the three's 95 % intervals if they were drawn, all 0 if exact.
    """

    process: str
    size: int
    error: float
    turned: float
    noise: float
    halves: tuple[float, float, float] = (0.0, 0.0, 0.0)


def variants_of(names: Sequence[str] = (*ESTIMATORS, *PUBLISHED)) -> dict[str, Assign]:
    """The functions of some estimators in all their variants, by name (the last part of a dotted
    path) and options."""
    entries = [(find_estimator(name), name.rpartition(".")[2]) for name in names]
    return {
        f"{name} {', '.join(f'{k}={v}' for k, v in options.items())}".strip(): _of(entry, options)
        for entry, name in entries
        for options in [variant.options for variant in entry.variants] or [{}]
    }


def _of(entry: Estimator, options: Mapping[str, Any]) -> Assign:
    if entry.per == "token":  # an action of the board's processes is one token
        return lambda table: table.reward
    return lambda table: credit_steps(table, entry, **options).value


def board(
    assigns: Mapping[str, Assign],
    challenges: Mapping[str, Challenge] = CHALLENGES,
    sizes: Sequence[int] = SIZES,
) -> Iterator[tuple[str, Measured]]:
    """Every process at every size, each with all these estimators. Raises ValueError for numbers
    that depend on the order of a group's rollouts."""
    for name, challenge in challenges.items():
        process, truth, unit = challenge.process, challenge.process.true_gradient(), 0.0
        for size in sizes:
            groups = every_group(process, size)
            _, plain = exact(process, groups, rloo(groups.table))
            unit = unit or plain * size
            for label, assign in assigns.items():
                advantages, width, spread = assign(groups.table), 0.0, 0.0
                if _alone(process, groups, label, assign, advantages):
                    mean, variance = exact(process, groups, advantages)
                else:
                    mean, ratio, width, spread = _drawn(process, groups, assign, truth)
                    variance = ratio * plain
                bias = compare(mean, truth)
                if bias.scale > max(width, _NOTHING):
                    noise, share = variance * size / unit / bias.scale**2, width / bias.scale
                    figures = bias.error, bias.turned, noise
                    halves = width, share, noise * math.hypot(spread, 2 * share)
                else:
                    turned = 1.0 if width else bias.turned
                    figures, halves = (bias.error, turned, math.inf), (width, 0.0, 0.0)
                yield label, Measured(name, size, *figures, halves)


def exact(process: Process, groups: Groups, advantages: Floats) -> tuple[Floats, float]:
    """The expected gradient, and its variance over groups."""
    size = groups.members.shape[1]
    each = gradients(process, groups, advantages[groups.tokens.step] / size)
    mean: Floats = np.tensordot(groups.chance, each, 1)
    return mean, float(groups.chance @ ((each - mean) ** 2).sum(axis=(1, 2)))


def _alone(process: Process, groups: Groups, label: str, assign: Assign, together: Floats) -> bool:
    """Whether groups get the same numbers when they are credited alone, tried on a few."""
    owner = groups.table.group[groups.table.rollout]
    for k in np.random.default_rng(0).integers(len(groups.chance), size=8):
        one, turned = (
            groups_of(process, members[None], np.ones(1)).table
            for members in (groups.members[k], groups.members[k][::-1])
        )
        alone, cuts = assign(one), np.flatnonzero(np.diff(turned.rollout)) + 1
        if not np.allclose(alone, np.concatenate(np.split(assign(turned), cuts)[::-1])):
            raise ValueError(f"the numbers of {label!r} depend on the order of a group's rollouts")
        if not np.allclose(alone, together[owner == k]):
            return False
    return True


def _drawn(
    process: Process, groups: Groups, assign: Assign, truth: Floats
) -> tuple[Floats, float, float, float]:
    """The expected gradient from drawn batches, with `rloo` on them as the control variate, and its
    variance over that of `rloo`; half-widths of the 95 % intervals, the former's as a share of the
    true gradient's length, the latter's of itself."""
    draw = np.random.default_rng(0).choice
    pairs = []
    for _ in range(BATCHES):
        picked = groups.members[draw(len(groups.chance), BATCH, p=groups.chance)]
        batch = groups_of(process, picked, np.full(BATCH, 1 / BATCH))
        pairs.append([exact(process, batch, f(batch.table))[0] for f in (assign, rloo)])
    ours, plain = np.array(pairs).swapaxes(0, 1)
    apart, calm = ours - ours.mean(axis=0), plain - plain.mean(axis=0)
    factor = (apart * calm).sum() / (calm**2).sum()
    mean = ours.mean(axis=0) + factor * (truth - plain.mean(axis=0))
    wide, narrow = ((x**2).sum(axis=(1, 2)) for x in (apart, calm))
    ratio = wide.mean() / narrow.mean()
    z = 1.96 / math.sqrt(BATCHES)
    width = z * np.sqrt(((apart - factor * calm) ** 2).sum() / BATCHES) / np.linalg.norm(truth)
    spread = z * (wide - ratio * narrow).std() / wide.mean()
    return mean, float(ratio), float(width), float(spread)


def update_time(assign: Assign) -> float:
    """CPU milliseconds for the credit of an update on 32 groups of 8 rollouts of 20 steps."""
    drawn = np.random.default_rng(0).integers((10, 4, 2), size=(256, 20, 3)).tolist()
    trajectories = [[Move(0, t, s, a, r) for t, (s, a, r) in enumerate(one)] for one in drawn]
    process = Process(np.zeros((10, 4)), tuple(map(tuple, trajectories)))
    table = groups_of(process, np.arange(256).reshape(32, 8), np.ones(32)).table
    seconds = []
    for _ in range(3):
        began = time.process_time()
        assign(table)
        seconds.append(time.process_time() - began)
    return 1000 * sorted(seconds)[1]


def branched(trunks: int, branches: int) -> Iterator[tuple[str, Measured, float]]:
    """The estimator "branch" on every process with several steps, in groups of `trunks` with
    `branches` from the second action on; and its noise if steps that are repeated count as others
    do."""
    for name, challenge in CHALLENGES.items():
        process, size = challenge.process, trunks * (1 + branches)
        if not any(map(_second, process.trajectories)):
            continue
        alone, few = every_group(process, 1), every_group(process, SIZES[0])
        unit = exact(process, few, rloo(few.table))[1] * SIZES[0]
        groups = every_branched_group(process, trunks, branches, _second)
        mean, variance = exact(process, groups, ESTIMATORS["branch"](groups.table))
        bias = compare(mean, process.true_gradient())
        steps = _mean_steps(groups, groups.table.replayed) / _mean_steps(alone)
        every = _mean_steps(groups) / _mean_steps(alone)
        noise = variance / unit / bias.scale**2
        yield name, Measured(name, size, bias.error, bias.turned, noise * steps), noise * every


def _second(trajectory: Sequence[Move]) -> int:
    return int(len({(move.episode, move.step) for move in trajectory}) > 1)


def _mean_steps(groups: Groups, without: Flags | bool = False) -> float:
    """The expected number of a group's steps."""
    weights = np.where(without, 0.0, np.ones(len(groups.table.rollout)))
    counts = np.bincount(groups.table.group[groups.table.rollout], weights)
    return float(groups.chance @ counts)
