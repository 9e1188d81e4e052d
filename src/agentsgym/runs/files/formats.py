"""Versions of the files in a run directory, and the conversion of older records.

Every record (a summary, a line of metrics, a rollout) has its version as `schema`. A record
without one was written by agentsgym 0.1, whose formats are version 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.types.plain import short_repr

Record = dict[str, Any]
Conversion = Callable[[Record], Record]

KEY = "schema"


class NewerFormat(ValueError):
    """A file has a later version than this package can read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Format:
    """The format of one kind of file: `conversions[k]` converts a record of version k + 1 to
    version k + 2. To change a format, add a conversion; the version number follows from it."""

    conversions: tuple[Conversion, ...] = ()

    @property
    def version(self) -> int:
        """The version of new files."""
        return len(self.conversions) + 1

    def stamped(self, record: Mapping[str, Any]) -> Record:
        """A current record with its version, ready to be written."""
        return {KEY: self.version, **record}

    def current(self, record: Mapping[str, Any], source: str | Path) -> Record:
        """A record that was read from `source`, converted to the current version.

        Raises NewerFormat for a later version, DamagedFile if the version is not a valid number.
        """
        version = self.check(record, source)
        found = {key: value for key, value in record.items() if key != KEY}
        for convert in self.conversions[version - 1 :]:
            found = convert(found)
        return found

    def check(self, record: Mapping[str, Any], source: str | Path) -> int:
        """A record's version. Raises the same errors as `current`."""
        version = record.get(KEY, 1)
        if type(version) is not int or version < 1:
            raise DamagedFile(f"{KEY} is {short_repr(version)}")
        if version > self.version:
            raise NewerFormat(
                f"{source} was written by a newer agentsgym (schema {version}; this one reads up "
                f"to {self.version}): upgrade with `pip install --upgrade agentsgym`"
            )
        return version


def _clusters_of_summary(summary: Record) -> Record:
    """0.1 called the clusters of an evaluation `secrets`."""
    evaluations = {
        name: _clusters_of_figures(summary[name])
        for name in ("before", "after")
        if isinstance(summary.get(name), dict)
    }
    return summary | evaluations


def _clusters_of_figures(figures: Record) -> Record:
    renamed = {("clusters" if key == "secrets" else key): v for key, v in figures.items()}
    own = renamed.get("environments")
    if isinstance(own, dict):
        renamed["environments"] = {
            path: _clusters_of_figures(part) if isinstance(part, dict) else part
            for path, part in own.items()
        }
    return renamed


def _unnamed_dataset(rollout: Record) -> Record:
    """0.1 did not store which of several evaluation sets a rollout belongs to."""
    return {**rollout, "dataset": None}


def _no_penalties(rollout: Record) -> Record:
    """Version 2 did not store what a malformed action lost, so there it counts as nothing."""
    return {**rollout, "episodes": [_no_penalties_in(e) for e in rollout["episodes"]]}


def _no_penalties_in(episode: Record) -> Record:
    return {**episode, "steps": [{"penalty": 0.0, **step} for step in episode["steps"]]}


def _no_warm_started(summary: Record) -> Record:
    """Version 2 had no evaluation between a warm start and RL."""
    return {"warm_started": None, **summary}


def _no_figures_of_trials(summary: Record) -> Record:
    """Version 3 had no figures of the episodes of a trial; an evaluation without them is read."""
    return summary


SUMMARY = Format((_clusters_of_summary, _no_warm_started, _no_figures_of_trials))
METRICS = Format()
ROLLOUTS = Format((_unnamed_dataset, _no_penalties))
EVALUATION = Format()
TOKEN_RECORDS = Format()
SHARD_INDEX = Format()
