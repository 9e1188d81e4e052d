"""check_env: all checks on one environment, and the report, printable and as JSON."""

import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentsgym.checks.context import Context, Failed, Finding, Passed
from agentsgym.checks.rules import admissible, determinism, episodes, scores, tasks
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import tasks_of
from agentsgym.envs.registry import make
from agentsgym.types import Trust
from agentsgym.types.text import named_error

Subject = str | type[MultistepEnv] | MultistepEnv


CHECKS: dict[str, Callable[[Context], Passed]] = {
    "tasks": tasks.tasks,
    "same seed": determinism.same_seed,
    "another process": determinism.another_process,
    "interleaved": determinism.interleaved,
    "global randomness": determinism.global_randomness,
    "ending": episodes.ending,
    "clean-up": episodes.clean_up,
    "rewards": scores.rewards,
    "admissible actions": admissible.admissible,
    "masks": tasks.masks,
    "hostile actions": scores.hostile_actions,
    "list everything": scores.listing,
    "degenerate players": scores.degenerate_players,
    "speed": tasks.speed,
}
"""The checks, in the order they are run: functions that return Passed or raise Failed."""


class CheckFailed(AssertionError):
    """An environment failed its check; the message is the report's text."""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one environment. `seconds` is how long the check took."""

    env: str
    env_config: Mapping[str, Any]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every check passed; warnings do not count."""
        return all(finding.passed for finding in self.findings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings."""
        return tuple(warning for finding in self.findings for warning in finding.warnings)

    def __getitem__(self, name: str) -> Finding:
        """The finding of a check by its name. Raises KeyError."""
        return {finding.name: finding for finding in self.findings}[name]

    def raise_if_failed(self) -> "Report":
        """Return the report; raise CheckFailed with its text if a check failed."""
        if not self.passed:
            raise CheckFailed(self.to_text())
        return self

    def to_json(self) -> str:
        """One JSON object on one line."""
        return json.dumps({"passed": self.passed, **asdict(self)}, default=repr)

    def to_text(self) -> str:
        """A line per check, with its warnings below it."""
        width = max((len(finding.name) for finding in self.findings), default=0)
        lines = []
        for finding in self.findings:
            mark = "passed" if finding.passed else "FAILED"
            lines.append(f"{mark}  {finding.name:<{width}}  {finding.evidence}")
            lines += [f"        warning: {warning}" for warning in finding.warnings]
        failed = [finding.name for finding in self.findings if not finding.passed]
        verdict = f"failed: {', '.join(failed)}" if failed else "passed"
        return "\n".join([*lines, f"{self.env}: {verdict} ({self.seconds:.1f} s)"])


def check_env(
    subject: Subject,
    env_config: Mapping[str, Any] | None = None,
    *,
    tasks: Sequence[Mapping[str, Any]] = (),
    only: Sequence[str] = (),
    budget_seconds: float = 60.0,
    seed: int = 0,
    trust: Trust = False,
    note: Callable[[str], None] = lambda text: None,
) -> Report:
    """Play an environment without a model and report which checks it passes.

    Args:
        subject: a registered name, a dotted path, an environment class, or an environment object
            (the checks make new objects of its class with its configuration).
        env_config: the configuration; not allowed together with an object.
        tasks: more `task_data` to play, for an environment that defines no datasets.
        only: names of the checks to run (default: all of `CHECKS`).
        budget_seconds: about how long to play; slow environments are checked on fewer tasks, but
            on at least two.
        seed: the seed of the random players.
        trust: what may be imported, as in `make`.
        note: is told, before the first game, how long it takes.

    Raises UnknownEnvironment, ConfigError or MissingExtra if the environment cannot be made, and
    ValueError if there is no task to play or `only` names an unknown check. An error during play
    is a failed check, never an exception.
    """
    unknown = sorted(set(only) - set(CHECKS))
    if unknown:
        raise ValueError(f"there is no check {unknown[0]!r}; the checks are {', '.join(CHECKS)}")
    began = time.perf_counter()
    env = _made(subject, env_config, trust)
    # In this process, where checks can watch.
    config = {**env.env_config, "workers": 0} if env.config.workers else env.env_config
    context = Context(
        make=lambda tokenizer: type(env)(tokenizer, config),
        env=env,
        train=_dataset(env, "train"),
        held_out=_dataset(env, "eval"),
        extra=[dict(task) for task in tasks],
        budget=budget_seconds,
        seed=seed,
    )
    note(f"playing {env.name} without a model for about {budget_seconds:g} s")
    begun = [trial for trial in context.measure() if trial.steps or not trial.error]
    findings: tuple[Finding, ...] = ()
    if not begun and not only:
        findings = tuple(_run(name, context) for name in ("tasks", "rewards"))
    if not findings or findings[-1].passed:  # else the other checks would only say so again
        findings = tuple(_run(name, context) for name in CHECKS if not only or name in only)
    return Report(env.name, env.env_config, findings, time.perf_counter() - began)


def _run(name: str, context: Context) -> Finding:
    try:
        return Finding(name, True, *CHECKS[name](context))
    except Failed as failed:
        return Finding(name, False, str(failed))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the environment's own code may raise anything
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Finding(name, False, f"{named_error(error)} ({where.filename}:{where.lineno})")


def _made(subject: Subject, env_config: Mapping[str, Any] | None, trust: Trust) -> MultistepEnv:
    if isinstance(subject, str):
        return make(subject, None, env_config, trust=trust)
    if isinstance(subject, type):
        return subject(None, env_config)
    if env_config is not None:
        raise ValueError("an environment object already has its configuration")
    return subject


def _dataset(env: MultistepEnv, which: str) -> list[Mapping[str, Any]] | None:
    try:
        return [dict(task) for task in tasks_of(env, which)["task_data"]]
    except NotImplementedError:
        return None
