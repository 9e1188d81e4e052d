"""The files of a run: its directory, metrics, rollouts and summary."""

from agentsgym.runs.files.columns import StoredRollout
from agentsgym.runs.files.directory import DamagedFile, RunDirectory
from agentsgym.runs.files.records import (
    MetricsFile,
    OtherFormat,
    Summary,
    read_metrics,
    read_summary,
)
from agentsgym.runs.files.rollouts import (
    RolloutWriter,
    TokenRecordWriter,
    drop_rollouts_from,
    drop_token_records_from,
    read_file,
    read_rollouts,
    read_stored,
    read_token_records,
)

__all__ = [
    "DamagedFile",
    "MetricsFile",
    "OtherFormat",
    "RolloutWriter",
    "RunDirectory",
    "StoredRollout",
    "Summary",
    "TokenRecordWriter",
    "drop_rollouts_from",
    "drop_token_records_from",
    "read_file",
    "read_metrics",
    "read_rollouts",
    "read_stored",
    "read_summary",
    "read_token_records",
]
