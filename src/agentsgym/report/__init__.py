"""What a run leaves behind: its directory, metrics, rollouts, summary and picture."""

from agentsgym.report.curve import draw_curve
from agentsgym.report.directory import RunDirectory
from agentsgym.report.encoding import RolloutLine
from agentsgym.report.metrics import MetricsFile, read_metrics
from agentsgym.report.rollouts import (
    RolloutWriter,
    drop_rollouts_from,
    read_lines,
    read_rollouts,
)
from agentsgym.report.summary import Figures, Summary, read_summary

__all__ = [
    "Figures",
    "MetricsFile",
    "RolloutLine",
    "RolloutWriter",
    "RunDirectory",
    "Summary",
    "draw_curve",
    "drop_rollouts_from",
    "read_lines",
    "read_metrics",
    "read_rollouts",
    "read_summary",
]
