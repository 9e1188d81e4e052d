"""Reads what a diagnosis rests on from a run directory, which may be another person's."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.evaluation import Evaluation
from agentsgym.report.doctor.evidence import Evidence, PlayedSet
from agentsgym.report.viewer.rollout_set import RolloutSet
from agentsgym.report.viewer.selection import spread
from agentsgym.report.viewer.source import Source
from agentsgym.runs.sources import load_yaml

_EARLY, _RECENT = 3, 5
"""Generations that are read of the beginning and of the end of training."""


def read_evidence(source: Source) -> Evidence:
    """A run's or an evaluation's metrics, configuration and evaluations, and the rollouts of some
    generations. Reading follows no link out of the directory that the source does not allow."""
    told = source.overview()
    metrics = _training_lines(told["metrics"])
    played = [_read(one) for one in _chosen(source.sets(), Evidence(metrics).since)]
    return Evidence(
        metrics=metrics,
        played=[one for one, _ in played],
        evaluations=_evaluations(told),
        config=_config(told["config"]),
        problems=[*told["problems"], *(problem for _, problem in played if problem)],
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
    return PlayedSet(one.id, one.phase, one.step, rollouts, contents.records), contents.problem


def _training_lines(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The columns of the viewer as lines again."""
    places = [at for at, phase in enumerate(metrics["phase"]) if phase == "train"]
    values = metrics["values"]
    return [
        {"step": metrics["step"][at]} | {name: values[name][at] for name in values} for at in places
    ]


def _evaluations(told: Mapping[str, Any]) -> dict[str, Evaluation]:
    summary, saved = told["summary"] or {}, told["evaluation"] or {}
    found = {name: summary.get(name) for name in ("before", "warm_started", "after")}
    found["evaluation"] = saved.get("figures")
    return {name: Evaluation.model_validate(one) for name, one in found.items() if one}


def _config(text: str) -> dict[str, Any]:
    try:
        return load_yaml(text, "config.yaml") if text else {}
    except ConfigError:
        return {}
