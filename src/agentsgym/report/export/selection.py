"""Which of a run's rollouts an export contains."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentsgym.envs import ConfigError
from agentsgym.evaluation.metrics import record
from agentsgym.report.stored import RolloutSet, groups
from agentsgym.runs.files import StoredRollout


@dataclass(frozen=True, slots=True)
class Filters:
    """What to export.

    Args:
        phases: phases of the run; empty: those that the format is meant for.
        steps: the first and the last training step.
        envs: names of environments; empty: all.
        min_reward: rollouts with less reward are left out.
        won: only rollouts of which every scored episode was won.
        best: so many rollouts of each group, those with most reward, of equal ones the first.
    """

    phases: tuple[str, ...] = ()
    steps: tuple[int, int] | None = None
    envs: tuple[str, ...] = ()
    min_reward: float | None = None
    won: bool = False
    best: int | None = None


def select_sets(
    sets: Sequence[RolloutSet], filters: Filters, usual: Sequence[Sequence[str]]
) -> list[RolloutSet]:
    """The sets of the filters' phases and steps. `usual` are phases to take if the filters name
    none, the first choice that the run has. Raises ConfigError if there are none."""
    there = list(dict.fromkeys(one.phase for one in sets))
    phases = filters.phases or _first(usual, there)
    low, high = filters.steps or (0, math.inf)
    chosen = [one for one in sets if one.phase in phases and low <= one.step <= high]
    if not chosen:
        steps = "" if filters.steps is None else f" from step {low} to {high}"
        raise ConfigError(
            f"there are no rollouts of the phase {' or '.join(phases)}{steps}; "
            f"the phases there: {', '.join(there) or 'none'}"
        )
    return chosen


def _first(usual: Sequence[Sequence[str]], there: Sequence[str]) -> Sequence[str]:
    return next((choice for choice in usual if set(choice) & set(there)), usual[0])


def select_groups(
    lines: Sequence[StoredRollout], filters: Filters, *, failed: bool = False
) -> Iterator[Sequence[StoredRollout]]:
    """The rollouts of each group that pass the filters. Failed rollouts pass only if `failed`
    says so and no filter asks for a reward."""
    failed = failed and filters.min_reward is None and not filters.won and filters.best is None
    for members in groups(lines):
        kept = _best([line for line in members if _passes(line, filters, failed)], filters.best)
        if kept:
            yield kept


def _passes(line: StoredRollout, filters: Filters, failed: bool) -> bool:
    rollout = line.rollout
    if filters.envs and rollout.env_class_path not in filters.envs:
        return False
    if rollout.failed or not math.isfinite(rollout.final_reward):
        return failed and rollout.failed
    if filters.min_reward is not None and rollout.final_reward < filters.min_reward:
        return False
    return not filters.won or record(rollout).win == 1


def _best(lines: Sequence[StoredRollout], count: int | None) -> Sequence[StoredRollout]:
    """The `count` lines with most reward, in their order."""
    if count is None or len(lines) <= count:
        return lines
    order = sorted(range(len(lines)), key=lambda n: (-lines[n].rollout.final_reward, n))
    return [lines[n] for n in sorted(order[:count])]
