"""The rollouts of a run or an evaluation as Inspect's `.eval` logs."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inspect_ai.log import (
    EvalDataset,
    EvalError,
    EvalLog,
    EvalMetric,
    EvalPlan,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSettings,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import ModelUsage
from inspect_ai.scorer import Score
from inspect_ai.viewer import ViewerConfig

from agentsgym import __version__
from agentsgym.envs import ConfigError
from agentsgym.evaluation import assess
from agentsgym.evaluation.metrics import record
from agentsgym.integrations.inspect.transcript import Transcript, episode_facts
from agentsgym.report.export.selection import Filters, select_groups, select_sets
from agentsgym.report.viewer.rollout_set import RolloutSet
from agentsgym.report.viewer.source import Source
from agentsgym.runs.files import StoredRollout
from agentsgym.runs.files.atomic import replacing
from agentsgym.types import Rollout
from agentsgym.types.text import clean_text, masked, plain

_USUAL = (("before", "warmstarted", "eval", "after"), ("train",))
_LONGEST_NAME = 80


@dataclass
class Logs:
    """What was written: the files, the numbers of rollouts, and a sentence for each file of the run
    that could not be read to its end."""

    files: list[str] = field(default_factory=list)
    rollouts: int = 0
    read: int = 0
    problems: list[str] = field(default_factory=list)


def write_logs(source: Source, folder: Path, filters: Filters | None = None) -> Logs:
    """Write a log for each evaluation (or generation, if the filters name the phase `train`) to a
    new folder, which appears only when it is complete.

    Raises ConfigError if `folder` exists, or if no rollout passes the filters.
    """
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} exists; name another place, or delete it")
    filters, logs, model = filters or Filters(), Logs(), _model(source)
    with replacing(folder) as part:
        part.mkdir()
        for one in select_sets(source.sets(), filters, _USUAL):
            contents = one.read()
            logs.read += len(contents.lines)
            if contents.problem is not None:
                logs.problems.append(contents.problem)
            groups = select_groups(contents.lines, filters, failed=True)
            lines = [line for members in groups for line in members]
            if lines:
                log = log_of(lines, one, source.name, model)
                write_eval_log(log, part / file_name(log))
                logs.files.append(file_name(log))
                logs.rollouts += len(lines)
        if not logs.files:
            raise ConfigError(f"none of the {logs.read} rollouts that were read passes the filters")
    return logs


def log_of(lines: Sequence[StoredRollout], one: RolloutSet, run: str, model: str) -> EvalLog:
    """The log of one set of rollouts of the directory `run`, played by `model`. A group of rollouts
    is one sample, its rollouts are the epochs."""
    rollouts = [line.rollout for line in lines]
    played = datetime.fromtimestamp(one.paths[0].stat().st_mtime, UTC).replace(microsecond=0)
    envs = list(dict.fromkeys(rollout.env_class_path for rollout in rollouts))
    groups = {rollout.group for rollout in rollouts}
    when = played.isoformat()
    name = hashlib.blake2b(f"{run} {one.id} {when}".encode(), digest_size=11).hexdigest()
    spec = EvalSpec(
        created=when,
        eval_id=name,
        run_id=name,
        task_id=name,
        task=clean_text(f"{'+'.join(envs)}-{one.id}"),
        task_args=masked(plain(rollouts[0].env_config)) if len(envs) == 1 else {},
        dataset=EvalDataset(name="+".join(envs), samples=len(groups)),
        model=model,
        config=EvalSettings(epochs=max(rollout.index for rollout in rollouts) + 1),
        packages={"agentsgym": __version__},
        viewer=ViewerConfig(trust_content=False),  # shown as text, whatever a model wrote
        metadata={"run": run, "phase": one.phase, "step": one.step, "dataset": one.dataset},
    )
    return EvalLog(
        status="success",
        eval=spec,
        plan=EvalPlan(),
        results=_results(rollouts),
        stats=EvalStats(started_at=when, completed_at=when),
        samples=[sample_of(line, model, played) for line in lines],
    )


def file_name(log: EvalLog) -> str:
    """`<time>_<task>_<id>.eval`, as Inspect names its own."""
    when = str(log.eval.created).replace(":", "-")
    task = "".join(c if c.isalnum() else "-" for c in log.eval.task)[:_LONGEST_NAME]
    return f"{when}_{task}_{log.eval.eval_id}.eval"


def sample_of(line: StoredRollout, model: str, played: datetime) -> EvalSample:
    """A rollout as a sample."""
    rollout = line.rollout
    transcript = Transcript(rollout, model, played)
    steps = [step for episode in rollout.episodes for step in episode.steps]
    return EvalSample(
        id=rollout.group,
        epoch=rollout.index + 1,
        input=clean_text(steps[0].observation) if steps else "",
        target=clean_text(str(rollout.task_data.get("solution", ""))),
        messages=transcript.messages,
        scores=_scores(rollout, steps[-1].action if steps else ""),
        metadata=_metadata(line),
        events=transcript.events,
        model_usage=_usage(rollout, model),
        error=_error(rollout),
        uuid=rollout.session_id,
    )


def _scores(rollout: Rollout, answer: str) -> dict[str, Score] | None:
    if rollout.failed:
        return None
    win = record(rollout).win
    values = {"reward": rollout.final_reward} | ({} if win is None else {"win": float(win)})
    return {name: Score(value=v, answer=clean_text(answer)) for name, v in values.items()}


def _metadata(line: StoredRollout) -> dict[str, Any]:
    rollout = line.rollout
    return {
        "env": rollout.env_class_path,
        "task_data": plain(rollout.task_data),
        "seed": str(rollout.seed),  # above 2^53 a browser would round it
        "policy_version": rollout.policy_version,
        "session_id": rollout.session_id,
        "episodes": [episode_facts(episode) for episode in rollout.episodes],
    }


def _usage(rollout: Rollout, model: str) -> dict[str, ModelUsage]:
    total = sum(len(row.token_ids) for row in rollout.rows)
    said = rollout.agent_tokens
    if not total:
        return {}
    return {model: ModelUsage(input_tokens=total - said, output_tokens=said, total_tokens=total)}


def _error(rollout: Rollout) -> EvalError | None:
    if rollout.error is None:
        return None
    text = clean_text(rollout.error)
    last = text.strip().splitlines()[-1] if text.strip() else "failed"
    return EvalError(message=last, traceback=text, traceback_ansi=text)


def _results(rollouts: Sequence[Rollout]) -> EvalResults:
    """Means with our 95 % intervals, over clusters of tasks."""
    found = assess(rollouts)
    figures: dict[str, tuple[float | None, ...]] = {"reward": (found.reward, *found.reward_ci95)}
    if found.win_rate is not None:
        figures["win"] = (found.win_rate, *(found.ci95 or ()))
    live = len(rollouts) - found.failures
    return EvalResults(
        total_samples=len(rollouts),
        completed_samples=live,
        scores=[
            EvalScore(
                name=name,
                scorer=name,
                scored_samples=live,
                unscored_samples=found.failures,
                metrics={
                    key: EvalMetric(name=key, value=value)
                    for key, value in zip(("mean", "ci95_low", "ci95_high"), values, strict=False)
                    if value is not None
                },
            )
            for name, values in figures.items()
        ],
    )


def _model(source: Source) -> str:
    told = source.overview()
    for part in (told["evaluation"], told["summary"]):
        if part is not None and part.get("model"):
            return clean_text(str(part["model"]))
    return source.name
