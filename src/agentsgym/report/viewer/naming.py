"""Names of single rollouts, for instance `train-40/3/1`: set, group, number in the group."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentsgym.envs import ConfigError
from agentsgym.report.viewer.rollout_set import RolloutSet
from agentsgym.report.viewer.selection import Chosen
from agentsgym.runs.files import StoredRollout

_NAME = re.compile(r"(?P<set>[a-z]+-\d+(?:-[0-9a-f]+)?)/(?P<group>\d+)/(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class RolloutName:
    """The rollout `number` of a `group` in the set with the id `set`."""

    set: str
    group: int
    number: int

    @property
    def address(self) -> str:
        """Where it stands on the page of its run."""
        return f"#/rollout/0/{self.set}/{self.group}.{self.number}"

    def __str__(self) -> str:
        return f"{self.set}/{self.group}/{self.number}"

    def names(self, line: StoredRollout) -> bool:
        """Whether it is this rollout of its set."""
        return (line.rollout.group, line.rollout.index) == (self.group, self.number)


def rollout_name(text: str) -> RolloutName:
    """The name that a user wrote. Raises ConfigError."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r} is no rollout: write SET/GROUP/NUMBER, such as train-40/3/1")
    return RolloutName(found["set"], int(found["group"]), int(found["number"]))


def with_sets(
    chosen: list[RolloutSet], every: Sequence[RolloutSet], wanted: Sequence[RolloutName]
) -> list[RolloutSet]:
    """The chosen sets and those of the wanted rollouts. Raises ConfigError if there is none."""
    ids = {one.id for one in every}
    for name in wanted:
        if name.set not in ids:
            raise ConfigError(f"there is no rollout {name}: the run has no set {name.set}")
    named = {name.set for name in wanted}
    return [one for one in every if one in chosen or one.id in named]


def with_groups(chosen: Chosen, wanted: Sequence[RolloutName]) -> Chosen:
    """The chosen rollouts and the groups of the wanted ones. Raises ConfigError if the set lacks
    one of these."""
    mine = [name for name in wanted if name.set == chosen.rollouts.id]
    for name in mine:
        if not any(map(name.names, chosen.contents.lines)):
            raise ConfigError(f"there is no rollout {name} in the set {name.set}")
    if not mine:
        return chosen
    kept = {line.rollout.group for line in chosen.lines} | {name.group for name in mine}
    lines = [line for line in chosen.contents.lines if line.rollout.group in kept]
    return Chosen(chosen.rollouts, lines, chosen.contents)
