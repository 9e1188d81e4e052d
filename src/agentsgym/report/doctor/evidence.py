"""A fault, and what a diagnosis rests on, read from a run directory: it may be another person's."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentsgym.credit.table import differ
from agentsgym.evaluation import Evaluation
from agentsgym.evaluation.metrics import record
from agentsgym.evaluation.trends import Curve, Part
from agentsgym.report.stored import Contents, Source, groups, spread
from agentsgym.runs.evaluate import OPTIMAL
from agentsgym.types import Rollout, Step


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault by its name: what goes wrong, in a sentence; the numbers that show it; the `next`
    step; and rollouts to look at, by set, group and number (train-40/3/1). `steps` are the first
    and the last optimizer step that it rests on, None where it rests on no step."""

    fault: str
    title: str
    evidence: tuple[str, ...]
    next: str
    rollouts: tuple[str, ...] = ()
    steps: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Signs:
    """What shows a fault: `lines` of numbers, the steps that they rest on, and the rollouts of a
    set that are worth a look."""

    lines: tuple[str, ...]
    steps: tuple[int, int] | None = None
    look_at: Callable[[Contents], Iterable[Rollout]] | None = None


Group = Sequence[Rollout]


def comparable(one: Contents) -> list[Group]:
    """The live rollouts of a set by task; only groups of several."""
    live = (
        [line.rollout for line in lines if not line.rollout.failed] for lines in groups(one.lines)
    )
    return [members for members in live if len(members) > 1]


SOLVED = 0.9
"""Of the reference player's reward, or of wins: from here on there is little to learn."""
_HALF_WAY, _LEAST_STEPS = 0.5, 20  # steps: a guess


@dataclass(frozen=True)
class Evidence:
    """A run: its `metrics` by column, generations of the beginning of training (`early`) and of its
    end (`recent`, the newest first), its evaluations and what simple `players` earn by name, and
    its configuration. `problems` are files that could not be read."""

    metrics: Mapping[str, Any]
    early: Sequence[Contents] = ()
    recent: Sequence[Contents] = ()
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    players: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[str] = ()

    @cached_property
    def trained(self) -> Sequence[int]:
        """The training steps that were logged."""
        lines = zip(self.metrics["phase"], self.metrics["step"], strict=True)
        return [step for phase, step in lines if phase == "train"]

    def curve(self, name: str) -> Curve | None:
        """A metric over training; None if it was never logged."""
        columns = self.metrics["step"], self.metrics["phase"], self.metrics["values"].get(name, ())
        lines = [
            (s, v) for s, p, v in zip(*columns, strict=False) if p == "train" and v is not None
        ]
        return Curve(*zip(*lines, strict=True)) if lines else None

    @property
    def played(self) -> list[Contents]:
        """All generations, the oldest first."""
        return [*self.early, *reversed(self.recent)]

    @cached_property
    def is_solved(self) -> bool:
        """Whether the policy now earns what the reference player earns, or, where no reference is
        known, wins nearly always: then equal rewards and certain actions are the goal."""
        reward, wins, least = self.curve("reward"), self.curve("win_rate"), self.enough
        if reward is not None and least is not None:
            return reward.recent.mean >= least
        return wins is not None and wins.recent.mean >= SOLVED

    @cached_property
    def end(self) -> Part | None:
        """The reward on held-out tasks after training; while it goes on, the training reward's
        end."""
        curve = self.curve("reward")
        return self._measured("after") or (curve.recent if curve else None)

    @cached_property
    def way(self) -> tuple[float, float] | None:
        """The share of the way from the start's reward to the best that is made, as a 95 %
        interval. The best is the reference player's or the highest reward that was read. None if it
        is unknown, or the start as good."""
        curve, end = self.curve("reward"), self.end
        start = (
            self._measured("warm_started")
            or self._measured("before")
            or (curve.early if curve else None)
        )
        best = self.highest if self.reference is None else self.reference
        if start is None or end is None or best is None or best <= start.mean:
            return None
        made, error = end.mean - start.mean, 2 * math.hypot(start.error, end.error)
        return (made - error) / (best - start.mean), (made + error) / (best - start.mean)

    def _measured(self, name: str) -> Part | None:
        """An evaluation's reward, if its interval is known."""
        figures = self.evaluations.get(name)
        low, high = figures.reward_ci95 if figures else (None, None)
        if figures is None or figures.reward is None or low is None or high is None:
            return None
        return Part(0, 0, figures.reward, (high - low) / 4)

    def applies(self, only: str) -> bool:
        """Whether the run is `unsolved`, or `stuck`: after some steps surely not half way."""
        begun = max(self.trained, default=0) < _LEAST_STEPS
        stuck = not begun and (self.way is None or self.way[1] < _HALF_WAY)
        return not (only and self.is_solved) and (only != "stuck" or stuck)

    @property
    def enough(self) -> float | None:
        """The reward from which on there is little to learn; None without a known reference."""
        best = self.reference
        return SOLVED * best if best is not None and best > 0 else None

    @property
    def reference(self) -> float | None:
        """The reference player's mean reward on the held-out tasks, or that of the environment's
        best player on some of them."""
        known = [one.reference for one in self.evaluations.values() if one.reference is not None]
        return known[0] if known else self.players.get(OPTIMAL)

    @cached_property
    def highest(self) -> float | None:
        """The highest reward of the rollouts that were read; None if there is only one."""
        rewards = [rollout.final_reward for one in self.played for rollout in one.live]
        return max(rewards) if differ(rewards) else None

    @property
    def env(self) -> str:
        """The environment, as a command that the reader may run names it; ENV for anything else
        that a stranger's file calls one."""
        env = self.config.get("env")
        return env if isinstance(env, str) and re.fullmatch(r"[\w./-]+", env) else "ENV"


def has_won(rollout: Rollout) -> bool | None:
    """Whether all its scored episodes were won; None if they report no wins."""
    win = record(rollout).win
    return None if win is None else win == 1.0


def share(value: float) -> str:
    """A share as a percentage."""
    return f"{value:.0%}" if value == 0 or value >= 0.1 else f"{value:.1%}"


_EARLY, _RECENT = 3, 5
"""Generations that are read of the beginning and of the end of training."""


def read_evidence(source: Source) -> Evidence:
    """A run's or an evaluation's metrics, configuration and evaluations, and the rollouts of some
    generations."""
    overview = source.overview()
    metrics = overview["metrics"]
    reward = Evidence(metrics).curve("reward")
    since = 0 if reward is None else reward.recent.first - 1
    sets = [one for one in source.sets() if one.phase == "train"]
    late = [one for one in sets if one.step >= since] or sets[-1:]
    early = [one.read() for one in sets[:_EARLY] if one not in late]
    recent = [one.read() for one in reversed(spread(late, _RECENT))]
    return Evidence(
        metrics=metrics,
        early=early,
        recent=recent,
        evaluations=_evaluations(overview),
        players=(overview["summary"] or {}).get("players", {}),
        config=source.settings,
        problems=[*overview["problems"], *(p.problem for p in (*early, *recent) if p.problem)],
    )


def _evaluations(overview: Mapping[str, Any]) -> dict[str, Evaluation]:
    summary, saved = overview["summary"] or {}, overview["evaluation"] or {}
    figures = {name: summary.get(name) for name in ("before", "warm_started", "after")}
    figures["evaluation"] = saved.get("figures")
    return {name: Evaluation.model_validate(one) for name, one in figures.items() if one}


# -- the rollouts of a set that show a fault -------------------------------------------------------


LONGEST = 60
"""Characters of an action that are shown."""


def actions_of(rollouts: Iterable[Rollout]) -> Iterator[Step]:
    """The actions of rollouts."""
    return (step for r in rollouts for episode in r.episodes for step in episode.actions)


def steps_of(sets: Sequence[Contents]) -> tuple[int, int]:
    """The optimizer steps of generations, of which the newest is first."""
    return sets[-1].of.step + 1, sets[0].of.step + 1


def _most_rows(one: Contents) -> Iterable[Rollout]:
    broken = [r for r in one.live if any(row.begins == "template" for row in r.rows)]
    return sorted(broken, key=lambda rollout: -len(rollout.rows))


LOOK_AT: Mapping[str, Callable[[Contents], Iterable[Rollout]]] = {
    "failed": lambda one: (line.rollout for line in one.lines if line.rollout.failed),
    "unread": lambda one: (r for r in one.live if any(step.unread for step in actions_of([r]))),
    "truncated": lambda one: (
        r for r in one.live if any(s.truncated for episode in r.episodes for s in episode.steps)
    ),
    # Those of which the viewer shows the trainer's numbers.
    "recorded": lambda one: (r for r in one.live if r.session_id in one.records),
    "most_rows": _most_rows,
}
"""By the words of `faults.yaml`."""
