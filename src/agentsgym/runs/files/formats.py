"""Versions of the files in a run directory.

Every record (a summary, a line of metrics, a rollout) has its version as `schema`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.types.text import short_repr

Record = dict[str, Any]

KEY = "schema"


class NewerFormat(ValueError):
    """A file has a later version than this package can read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Format:
    """The format of one kind of file; `version` is that of new files."""

    version: int = 1

    def stamped(self, record: Mapping[str, Any]) -> Record:
        """A current record with its version, ready to be written."""
        return {KEY: self.version, **record}

    def current(self, record: Mapping[str, Any], source: str | Path) -> Record:
        """A record that was read from `source`, without its version.

        Raises NewerFormat for a later version, DamagedFile if the version is not a valid number.
        """
        self.check(record, source)
        return {key: value for key, value in record.items() if key != KEY}

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


SUMMARY = Format()
METRICS = Format()
ROLLOUTS = Format()
EVALUATION = Format()
TOKEN_RECORDS = Format()
