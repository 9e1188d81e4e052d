"""The files of a run: its directory, metrics, rollouts and summary."""

from agentsgym.runs.files.columns import StoredRollout
from agentsgym.runs.files.directory import RunDirectory
from agentsgym.runs.files.formats import NewerFormat
from agentsgym.runs.files.metrics import MetricsFile, read_metrics
from agentsgym.runs.files.rollouts import (
    RolloutWriter,
    drop_rollouts_from,
    read_file,
    read_rollouts,
    read_stored,
)
from agentsgym.runs.files.summary import Summary, read_summary
from agentsgym.runs.files.token_records import (
    TokenRecordWriter,
    drop_token_records_from,
    read_token_records,
)

__all__ = [
    "MetricsFile",
    "NewerFormat",
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
