"""A fault, and what a diagnosis rests on, read from a run directory: it may be another person's."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, TypeGuard

from agentsgym.evaluation import Evaluation
from agentsgym.evaluation.metrics import record
from agentsgym.report.stored import RolloutSet, Source, spread
from agentsgym.types import Rollout


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, in a sentence; the numbers that show it; what to try, the likeliest first;
    and rollouts to look at, by the names that `agentsgym view --rollout` takes. `steps` are the
    first and the last optimizer step that it rests on, None where it rests on no step."""

    fault: str
    title: str
    evidence: tuple[str, ...]
    attempts: tuple[str, ...]
    rollouts: tuple[str, ...] = ()
    steps: tuple[int, int] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The fault as plain data; what to try has the key `try`."""
        data = asdict(self)
        data["try"] = data.pop("attempts")
        return {name: list(v) if isinstance(v, tuple) else v for name, v in data.items()}


_PART, _LEAST_VALUES, _MOST_VALUES = 5, 3, 40
"""A part is a fifth of the curve, but at least 3 and at most 40 values."""


@dataclass(frozen=True, slots=True)
class Part:
    """Values of neighboring steps: their `mean` and its standard `error` (0 of a single value)."""

    first: int
    last: int
    mean: float
    error: float

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last step."""
        return self.first, self.last

    def __str__(self) -> str:
        return f"steps {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric's finite values and the steps they belong to; there is at least one."""

    steps: Sequence[int]
    values: Sequence[float]

    @property
    def early(self) -> Part:
        """The beginning."""
        return self._part(0, self._width)

    @property
    def recent(self) -> Part:
        """The end."""
        return self._part(len(self.values) - self._width, len(self.values))

    @property
    def whole(self) -> Part:
        """All of it."""
        return self._part(0, len(self.values))

    @property
    def is_long(self) -> bool:
        """Whether beginning and end share no value."""
        return len(self.values) >= 2 * self._width

    @property
    def _width(self) -> int:
        size = len(self.values)
        return min(size, _MOST_VALUES, max(_LEAST_VALUES, size // _PART))

    def _part(self, start: int, stop: int) -> Part:
        values = self.values[start:stop]
        count = len(values)
        middle = sum(values) / count
        spread = sum((value - middle) ** 2 for value in values) / max(1, count - 1)
        return Part(self.steps[start], self.steps[stop - 1], middle, math.sqrt(spread / count))


def rise(curve: Curve) -> float:
    """The end's mean minus the beginning's, or 0 within two standard errors of it."""
    early, recent = curve.early, curve.recent
    change = recent.mean - early.mean
    sure = abs(change) > 2 * math.hypot(early.error, recent.error)
    return change if sure and curve.is_long else 0.0


Group = Sequence[Rollout]

MOST_NAMED = 4
"""Rollouts that a finding names."""
SOLVED = 0.9
"""Of the reference player's reward, or of wins: from here on there is little to learn."""


@dataclass(frozen=True)
class PlayedSet:
    """The rollouts of one generation or evaluation. `name` is that of the viewer; `step` counts
    the optimizer steps before it; of the sessions `recorded`, the trainer's numbers are stored."""

    name: str
    phase: str
    step: int
    rollouts: Sequence[Rollout]
    recorded: Collection[str] = ()

    def name_of(self, rollout: Rollout) -> str:
        """What `agentsgym view --rollout` calls it."""
        return f"{self.name}/{rollout.group}/{rollout.index}"

    @cached_property
    def live(self) -> list[Rollout]:
        """The rollouts that did not fail."""
        return [rollout for rollout in self.rollouts if not rollout.failed]

    @cached_property
    def groups(self) -> list[Group]:
        """The live rollouts by task; only groups that can be compared."""
        found: dict[int, list[Rollout]] = {}
        for rollout in self.live:
            found.setdefault(rollout.group, []).append(rollout)
        return [members for members in found.values() if len(members) > 1]


@dataclass(frozen=True)
class Evidence:
    """A run: its training `metrics` by line, the generations that were read, oldest first, its
    evaluations by name, and its configuration. `problems` are files that could not be read."""

    metrics: Sequence[Mapping[str, Any]] = ()
    played: Sequence[PlayedSet] = ()
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[str] = ()

    def curve(self, name: str) -> Curve | None:
        """A metric over training; None if it was never logged."""
        lines = ((line["step"], line.get(name)) for line in self.metrics)
        found = [(step, float(value)) for step, value in lines if _is_number(value)]
        return Curve([step for step, _ in found], [value for _, value in found]) if found else None

    def high(self, name: str, least: float) -> Curve | None:
        """The metric's curve if its mean at the end is at least this."""
        curve = self.curve(name)
        return curve if curve is not None and curve.recent.mean >= least else None

    def names(self) -> list[str]:
        """Every metric that was logged."""
        return list(dict.fromkeys(name for line in self.metrics for name in line))

    @property
    def recent(self) -> Sequence[PlayedSet]:
        """The generations of the end of training, the newest first."""
        training = [one for one in self.played if one.phase == "train"]
        return [one for one in reversed(training) if one.step >= self.since] or training[-1:]

    @property
    def since(self) -> int:
        """The first generation of the end of training, by the optimizer steps before it."""
        curve = self.curve("reward")
        return 0 if curve is None else curve.recent.first - 1

    @property
    def early(self) -> Sequence[PlayedSet]:
        """The generations of the beginning of training."""
        training = [one for one in self.played if one.phase == "train"]
        return [one for one in training if one not in self.recent]

    @cached_property
    def is_solved(self) -> bool:
        """Whether the policy now earns what the reference player earns, or, where no reference is
        known, wins nearly always: then equal rewards and certain actions are the goal."""
        reward, least = self.curve("reward"), self.enough
        if reward is not None and least is not None:
            return reward.recent.mean >= least
        return self.high("win_rate", SOLVED) is not None

    @property
    def enough(self) -> float | None:
        """The reward from which on there is little to learn; None without a known reference."""
        best = self.reference
        return SOLVED * best if best is not None and best > 0 else None

    @property
    def reference(self) -> float | None:
        """The reference player's mean reward on the held-out tasks."""
        known = [one.reference for one in self.evaluations.values() if one.reference is not None]
        return known[0] if known else None

    @cached_property
    def highest(self) -> float | None:
        """The highest reward of the rollouts that were read; None if there is only one."""
        rewards = {rollout.final_reward for one in self.played for rollout in one.live}
        return max(rewards) if len(rewards) > 1 else None

    @property
    def env(self) -> str:
        """The environment, as a command names it; ENV if it is unknown."""
        return in_command(self.config.get("env"))

    def setting(self, name: str) -> Any:
        """A value of the configuration's section `train`; None if it is not there."""
        train = self.config.get("train")
        return train.get(name) if isinstance(train, Mapping) else None


def in_command(env: Any) -> str:
    """The name of an environment in a command that the reader may run; ENV for anything else that
    a stranger's file calls one."""
    return env if isinstance(env, str) and re.fullmatch(r"[\w./-]+", env) else "ENV"


def named(
    sets: Iterable[PlayedSet], wanted: Callable[[PlayedSet], Iterable[Rollout]]
) -> tuple[str, ...]:
    """The names of a few of the wanted rollouts, from the first sets that have some."""
    names = (one.name_of(rollout) for one in sets for rollout in wanted(one))
    return tuple(islice(names, MOST_NAMED))


def has_won(rollout: Rollout) -> bool | None:
    """Whether all its scored episodes were won; None if they report no wins."""
    win = record(rollout).win
    return None if win is None else win == 1.0


def share(value: float) -> str:
    """A share as a percentage."""
    return f"{value:.0%}" if value == 0 or value >= 0.1 else f"{value:.1%}"


def share_now(curve: Curve, of: str) -> str:
    """The share at the end, and at the beginning where that is another part of the curve."""
    now = f"{share(curve.recent.mean)} of {of} in {curve.recent}"
    return f"{now} ({share(curve.early.mean)} in {curve.early})" if curve.is_long else now


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and math.isfinite(value)


_EARLY, _RECENT = 3, 5
"""Generations that are read of the beginning and of the end of training."""


def read_evidence(source: Source) -> Evidence:
    """A run's or an evaluation's metrics, configuration and evaluations, and the rollouts of some
    generations. Reading follows no link out of the directory that the source does not allow."""
    overview = source.overview()
    metrics = _training_lines(overview["metrics"])
    played = [_read(one) for one in _chosen(source.sets(), Evidence(metrics).since)]
    return Evidence(
        metrics=metrics,
        played=[one for one, _ in played],
        evaluations=_evaluations(overview),
        config=source.settings,
        problems=[*overview["problems"], *(problem for _, problem in played if problem)],
    )


def _chosen(sets: Sequence[RolloutSet], since: int) -> list[RolloutSet]:
    """Generations of the beginning, and of the end from step `since` on; of an evaluation, all."""
    training = [one for one in sets if one.phase == "train"]
    if not training:
        return list(sets)
    recent = [one for one in training if one.step >= since] or training[-1:]
    return [*(one for one in training[:_EARLY] if one not in recent), *spread(recent, _RECENT)]


def _read(one: RolloutSet) -> tuple[PlayedSet, str | None]:
    contents = one.read()
    rollouts = [line.rollout for line in contents.lines]
    return PlayedSet(
        one.id, one.phase, one.step, rollouts, contents.records.keys()
    ), contents.problem


def _training_lines(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The columns of the viewer as lines again."""
    places = [at for at, phase in enumerate(metrics["phase"]) if phase == "train"]
    values = metrics["values"]
    return [
        {"step": metrics["step"][at]} | {name: values[name][at] for name in values} for at in places
    ]


def _evaluations(overview: Mapping[str, Any]) -> dict[str, Evaluation]:
    summary, saved = overview["summary"] or {}, overview["evaluation"] or {}
    found = {name: summary.get(name) for name in ("before", "warm_started", "after")}
    found["evaluation"] = saved.get("figures")
    return {name: Evaluation.model_validate(one) for name, one in found.items() if one}
