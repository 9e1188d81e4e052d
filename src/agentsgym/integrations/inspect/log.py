"""The rollouts of a run or an evaluation as Inspect's `.eval` logs: a span per episode, and for
each action the model's turn and the reward of the step as an intermediate score."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inspect_ai.event import Event, InfoEvent, ModelEvent, ScoreEvent, SpanBeginEvent, SpanEndEvent
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalMetric,
    EvalPlan,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import Score
from inspect_ai.viewer import ViewerConfig

from agentsgym import __version__
from agentsgym.envs import ConfigError
from agentsgym.evaluation import assess
from agentsgym.evaluation.metrics import record
from agentsgym.report.export.write import Counts, Filters, new_place, selected
from agentsgym.report.stored import RolloutSet, Source
from agentsgym.rollout.failures import last_line
from agentsgym.runs.files import StoredRollout
from agentsgym.types import Episode, Message, Rollout, Step
from agentsgym.types.text import clean_text, finite, masked, plain

_SETTINGS = GenerateConfig()


def transcript(rollout: Rollout, model: str) -> tuple[list[ChatMessage], list[Event]]:
    """The messages and events of a rollout of `model`. An episode that continues the conversation
    of the one before it repeats none of its messages."""
    own = [message for episode in rollout.episodes for message in episode.messages]
    shown = {id(message): _message(message, model) for message in own}
    read = {
        (episode.index, step.index): [shown[id(message)] for message in conversation[:end]]
        for conversation, turns in rollout.conversations()
        for episode, step, end in turns
    }
    events: list[Event] = []
    for episode in rollout.episodes:
        span = f"{rollout.session_id}-{episode.index}"
        free = " (free shot)" if episode.score_weight == 0 else ""
        events.append(
            SpanBeginEvent(id=span, span_id=span, name=f"episode {episode.index + 1}{free}")
        )
        for step in episode.steps:
            events += _turn(step, read[episode.index, step.index], model, span)
        events.append(InfoEvent(source="episode", data=episode_facts(episode), span_id=span))
        events.append(SpanEndEvent(id=span, span_id=span))
    return list(shown.values()), events


def _turn(
    step: Step, conversation: Sequence[ChatMessage], model: str, span: str
) -> tuple[ModelEvent, ScoreEvent]:
    *prompt, answer = conversation
    output = ModelOutput.from_message(answer, "max_tokens" if step.truncated else "stop")
    output.model = model
    holds = {
        "reflection": step.kind == "reflection",
        "malformed": step.malformed,
        "truncated": step.truncated,
    }
    marks = [name for name, held in holds.items() if held]
    score = Score(
        value=step.reward,
        explanation=", ".join([f"reward of step {step.index + 1}", *marks]),
        metadata=plain(step.info),
    )
    event = ModelEvent(
        model=model,
        input=prompt,
        tools=[],
        tool_choice="none",
        config=_SETTINGS,
        output=output,
        span_id=span,
    )
    return event, ScoreEvent(score=score, intermediate=True, scorer="reward", span_id=span)


def _message(message: Message, model: str) -> ChatMessage:
    content = message.content
    if message.role == "assistant":
        return ChatMessageAssistant(content=content, model=model, source="generate")
    if message.role == "system":
        return ChatMessageSystem(content=content)
    return ChatMessageUser(content=content)


def episode_facts(episode: Episode) -> dict[str, Any]:
    """How an episode ended."""
    return {
        "reward": finite(episode.reward),
        "win": episode.win,
        "scored": episode.score_weight > 0,
        "stop_reason": episode.stop_reason,
        "steps": len(episode.steps),
    }


_USUAL = (("before", "warmstarted", "eval", "after"), ("train",))
_LONGEST_NAME = 80


def write_logs(source: Source, folder: Path, filters: Filters | None = None) -> Counts:
    """Write a log for each evaluation (or generation, if the filters name the phase `train`) to a
    new folder, which appears only when it is complete; the logs are its `examples`.

    Raises ConfigError if `folder` exists, or if no rollout passes the filters.
    """
    filters, model = filters or Filters(), _model(source)
    counts = Counts(called="logs", show=f"inspect view --log-dir {folder}")
    with new_place(folder) as part:
        part.mkdir()
        for one, groups in selected(source, filters, _USUAL, counts, failed=True):
            lines = [line for members in groups for line in members]
            log = log_of(lines, one, source.name, model)
            write_eval_log(log, part / file_name(log))
            counts.examples += 1
        if not counts.examples:
            raise ConfigError(f"none of the {counts.read} rollouts read passes the filters")
    return counts


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
        task=f"{'+'.join(envs)}-{one.id}",
        task_args=masked(plain(rollouts[0].env_config)) if len(envs) == 1 else {},
        dataset=EvalDataset(name="+".join(envs), samples=len(groups)),
        model=model,
        config=EvalConfig(epochs=max(rollout.index for rollout in rollouts) + 1),
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
        samples=[sample_of(line, model) for line in lines],
    )


def file_name(log: EvalLog) -> str:
    """`<time>_<task>_<id>.eval`, as Inspect names its own."""
    when = str(log.eval.created).replace(":", "-")
    task = "".join(c if c.isalnum() else "-" for c in log.eval.task)[:_LONGEST_NAME]
    return f"{when}_{task}_{log.eval.eval_id}.eval"


def sample_of(line: StoredRollout, model: str) -> EvalSample:
    """A rollout as a sample."""
    rollout = line.rollout
    messages, events = transcript(rollout, model)
    steps = rollout.steps
    return EvalSample(
        id=rollout.group,
        epoch=rollout.index + 1,
        input=steps[0].observation if steps else "",
        target=clean_text(str(rollout.task_data.get("solution", ""))),
        messages=messages,
        scores=_scores(rollout, steps[-1].action if steps else ""),
        metadata={
            "env": rollout.env_class_path,
            "task_data": plain(rollout.task_data),
            "seed": str(rollout.seed),  # above 2^53 a browser would round it
            "policy_version": rollout.policy_version,
            "session_id": rollout.session_id,
            "episodes": [episode_facts(episode) for episode in rollout.episodes],
        },
        events=events,
        model_usage=_usage(rollout, model),
        error=_error(rollout),
        uuid=rollout.session_id,
    )


def _scores(rollout: Rollout, answer: str) -> dict[str, Score] | None:
    if rollout.failed:
        return None
    win = record(rollout).win
    values = {"reward": rollout.final_reward} | ({} if win is None else {"win": float(win)})
    return {name: Score(value=v, answer=answer) for name, v in values.items()}


def _usage(rollout: Rollout, model: str) -> dict[str, ModelUsage]:
    total = sum(len(row.token_ids) for row in rollout.rows)
    own = rollout.agent_tokens
    if not total:
        return {}
    return {model: ModelUsage(input_tokens=total - own, output_tokens=own, total_tokens=total)}


def _error(rollout: Rollout) -> EvalError | None:
    if rollout.error is None:
        return None
    text = rollout.error
    return EvalError(message=last_line(text), traceback=text, traceback_ansi=text)


def _results(rollouts: Sequence[Rollout]) -> EvalResults:
    """Means with our 95 % intervals, over clusters of tasks."""
    means = assess(rollouts)
    figures: dict[str, tuple[float | None, ...]] = {"reward": (means.reward, *means.reward_ci95)}
    if means.win_rate is not None:
        figures["win"] = (means.win_rate, *(means.ci95 or ()))
    live = len(rollouts) - means.failures
    return EvalResults(
        total_samples=len(rollouts),
        completed_samples=live,
        scores=[
            EvalScore(
                name=name,
                scorer=name,
                scored_samples=live,
                unscored_samples=means.failures,
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
    overview = source.overview()
    for part in (overview["evaluation"], overview["summary"]):
        if part is not None and part.get("model"):
            return clean_text(str(part["model"]))
    return source.name
