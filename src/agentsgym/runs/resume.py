"""Restores the state of a resumed run, and removes the files that it will write again."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.evaluation import Evaluation, assess_played
from agentsgym.runs.files import (
    MetricsFile,
    RolloutWriter,
    RunDirectory,
    Summary,
    drop_rollouts_from,
    drop_token_records_from,
    read_metrics,
    read_rollouts,
    read_summary,
)
from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.from_config import versions
from agentsgym.runs.settings import RunConfig
from agentsgym.runs.trust import trusted

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

Note = Callable[[str], None]

_KEPT = (
    "stop_reason",
    "model_figures",
    "before",
    "warm_started",
    "steps",
    "agent_tokens",
    "phases",
    "seconds",
)


def new_summary(config: RunConfig) -> Summary:
    """The summary of a new run."""
    return Summary(
        name=config.directory.name,
        seed=config.seed,
        env=config.env,
        env_config=config.env_config,
        model=config.model.path,
        versions=versions(),
    )


def recalled_summary(config: RunConfig, env: MultistepEnv, note: Note) -> Summary:
    """The summary of a resumed run, which plays in `env`. If it cannot be read, it is rebuilt, with
    a message."""
    directory, fresh = RunDirectory(config.directory), new_summary(config)
    try:
        old = read_summary(directory.summary)
    except FileNotFoundError:
        return fresh.model_copy(update=_evaluations(config, env, note))
    except DamagedFile as error:
        note(f"{error}; it is rebuilt from the other files, without the times before RL")
        return fresh.model_copy(update=_evaluations(config, env, note))
    return fresh.model_copy(update={name: getattr(old, name) for name in _KEPT})


def _evaluations(config: RunConfig, env: MultistepEnv, note: Note) -> dict[str, Evaluation | None]:
    """The evaluations before RL, from their rollouts."""
    return {
        "before": _evaluation(config, env, note, "before"),
        "warm_started": _evaluation(config, env, note, "warmstarted"),
    }


def _evaluation(config: RunConfig, env: MultistepEnv, note: Note, phase: str) -> Evaluation | None:
    try:
        rollouts = list(read_rollouts(RunDirectory(config.directory).root, phase))
    except DamagedFile as error:
        note(f"an evaluation before training is lost: {error}")
        return None
    if not rollouts:
        return None
    pool = EnvPool(
        None,
        trusted(config),
        [env] if env.needs else (),
    )
    return assess_played(rollouts, pool, seed=config.eval.seed).evaluation


def is_trained(config: RunConfig, settings: "GRPOEnvConfig", summary: Summary) -> bool:
    """Whether RL is finished, so that a resumed run only has to evaluate."""
    if not RunDirectory(config.directory).model.is_dir():
        return False
    reason = summary.stop_reason or "interrupted"
    if reason == "max_steps":
        return summary.steps >= int(settings.max_steps)
    if reason == "max_seconds":
        return summary.phases.get("rl", 0.0) >= (config.max_seconds or math.inf)
    return reason != "interrupted"


def rewind(
    directory: RunDirectory,
    step: int,
    summary: Summary,
    metrics: MetricsFile,
    writer: RolloutWriter,
) -> None:
    """Drop all data after optimizer step `step`, which a resumed run will produce again."""
    metrics.drop_after(step)
    drop_rollouts_from(directory.root, step)
    drop_token_records_from(directory.root, step)
    lines = [m for m in read_metrics(directory.metrics) if m["phase"] == "train"]
    last = lines[-1] if lines else {}
    writer.agent_tokens = last.get("total_agent_tokens", 0)
    summary.steps = step
    summary.phases["rl"] = last.get("seconds", 0.0)
