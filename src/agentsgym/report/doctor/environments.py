"""Environments whose rollouts fail, and environments of a mix that give nothing."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from agentsgym.report.doctor.evidence import (
    SOLVED,
    Curve,
    Evidence,
    Fault,
    examples,
    in_command,
    rise,
    share,
)
from agentsgym.report.stored import Contents
from agentsgym.types import Rollout

_MOST_FAILED = 0.05
_OF_ENVIRONMENT = re.compile(r"env/(?P<env>.+)/failed")
_LONGEST = 160


def rollouts_fail(evidence: Evidence) -> Fault | None:
    """5 % of the rollouts, or of an environment's, fail."""
    failed = dict(_failures(evidence))
    if not failed:
        return None
    parts = {name: curve for name, curve in failed.items() if name}
    environments = list(parts)
    curve = next(iter(failed.values()))
    command = in_command(environments[0]) if environments else evidence.env
    where = f" of {', '.join(environments)}" if environments else ""
    return Fault(
        f"Rollouts{where} fail; what they played is lost.",
        (
            *(_failing(name, one) for name, one in (parts or failed).items()),
            *_errors(evidence, environments),
        ),
        (
            "the error, shown at the end of each rollout below",
            f"`agentsgym check {command}` with the run's settings, which finds most faults of an "
            "environment without a model",
        ),
        examples(evidence.recent, _failed_in(environments)),
        curve.recent.steps,
    )


def idle_environment(evidence: Evidence) -> Fault | None:
    """One environment of a mix is no longer played, or all its rollouts earn the same."""
    names = _mix(evidence)
    idle = {name: why for name in names if (why := _idle(evidence, name))}
    if not idle or len(idle) == len(names):
        return None
    return Fault(
        f"Of the mix, {', '.join(idle)} teaches nothing.",
        tuple(f"{name}: {why}" for name, why in idle.items()),
        (
            "its tasks in the data set: are there enough, and are they drawn?",
            "easier tasks, or a warm start on its games, if it always earns the same",
            f"`agentsgym eval agent:optimal --env {in_command(next(iter(idle)))}`, to see what can "
            "be earned",
        ),
        examples(evidence.recent or evidence.early, _played_in(list(idle))),
    )


def _failures(evidence: Evidence) -> Iterator[tuple[str, Curve]]:
    """The high shares of failed rollouts: of each environment of a mix, and of all ("")."""
    for name in evidence.names():
        match = _OF_ENVIRONMENT.fullmatch(name)
        curve = evidence.high(name, _MOST_FAILED) if match or name == "failed" else None
        if curve is not None:
            yield (match["env"] if match else ""), curve


def _failing(name: str, curve: Curve) -> str:
    of = f"{name}: " if name else ""
    return f"{of}{share(curve.recent.mean)} of the rollouts fail in {curve.recent}"


def _errors(evidence: Evidence, environments: Sequence[str]) -> Iterator[str]:
    """The most frequent error of each environment."""
    counts: dict[str, Counter[str]] = {}
    for one in evidence.recent:
        for rollout in _failed_in(environments)(one):
            line = str(rollout.error).strip().splitlines()[-1:] or [""]
            counts.setdefault(rollout.env_class_path, Counter())[line[0][:_LONGEST]] += 1
    for name, errors in counts.items():
        error, count = errors.most_common(1)[0]
        yield f"{name}: {error!r} ({count} of {errors.total()} failed rollouts that were read)"


def _failed_in(environments: Sequence[str]) -> Callable[[Contents], Iterable[Rollout]]:
    return lambda one: (
        line.rollout
        for line in one.lines
        if line.rollout.failed and (not environments or line.rollout.env_class_path in environments)
    )


def _mix(evidence: Evidence) -> list[str]:
    """The environments of the mix; empty if there is only one."""
    names = [match["env"] for n in evidence.names() if (match := _OF_ENVIRONMENT.fullmatch(n))]
    return names if len(names) > 1 else []


def _idle(evidence: Evidence, name: str) -> str:
    """Why an environment teaches nothing; empty if it does."""
    reward, every = evidence.curve(f"env/{name}/reward"), evidence.curve("reward")
    if every is None:
        return ""
    if reward is None:
        return "no rollout of it was played to its end"
    if reward.steps[-1] < every.recent.first:
        return f"not played since step {reward.steps[-1]}"
    spread = evidence.curve(f"env/{name}/reward_std")
    if spread is None or spread.recent.mean > 0 or len(spread.values) < len(every.values) // 2:
        return ""
    wins = evidence.curve(f"env/{name}/win_rate")
    if (wins is not None and wins.recent.mean >= SOLVED) or rise(reward) > 0:
        return ""  # it was learned
    return f"all of its rollouts earn {reward.recent.mean:.3g} in {reward.recent}"


def _played_in(environments: Sequence[str]) -> Callable[[Contents], Iterable[Rollout]]:
    return lambda one: (
        line.rollout for line in one.lines if line.rollout.env_class_path in environments
    )
