"""Informing actions: those that an environment marks as telling the agent something new.

An environment marks each step with `info["informing"]`, True or False. A step without the mark
counts as not informing, and an environment that marks no step has no figure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.types import Episode

INFORMING = ("informing", "informing/free_shots", "informing/scored")

Share = tuple[int, int]
"""The number of informing actions and the number of actions."""


@dataclass(frozen=True, slots=True)
class InformingActions:
    """The informing actions in a rollout's free shots and in its scored episodes; `marked` says
    whether any step has the mark."""

    free_shots: Share = (0, 0)
    scored: Share = (0, 0)
    marked: bool = False


def informing_actions(episodes: Sequence[Episode]) -> InformingActions:
    """The informing actions of a rollout's episodes."""
    free: list[Any] = []
    scored: list[Any] = []
    for episode in episodes:
        marks = [step.info.get("informing") for step in episode.steps if step.kind == "action"]
        (scored if episode.score_weight else free).extend(marks)
    if all(mark is None for mark in (*free, *scored)):
        return InformingActions((0, len(free)), (0, len(scored)))
    return InformingActions(_share(free), _share(scored), marked=True)


def _share(marks: Sequence[Any]) -> Share:
    return sum(map(bool, marks)), len(marks)


def informing_sums(rollouts: Sequence[InformingActions]) -> dict[str, tuple[float, float]]:
    """The sums over one environment's rollouts: `informing`, and where there are free shots
    `informing/free_shots` and `informing/scored`. Empty if the environment marks no step."""
    if not any(one.marked for one in rollouts):
        return {}
    free, scored = (
        _added(one.free_shots for one in rollouts),
        _added(one.scored for one in rollouts),
    )
    names = INFORMING if free[1] else INFORMING[:1]
    return dict(zip(names, (_added((free, scored)), free, scored), strict=False))


def _added(shares: Iterable[Share]) -> Share:
    pairs = list(shares)
    return sum(told for told, _ in pairs), sum(number for _, number in pairs)
