"""Checking an environment: `check_env` plays it without a model and reports its faults."""

from agentsgym.checks.check import check_env
from agentsgym.checks.report import CheckFailed, Finding, Report

__all__ = ["CheckFailed", "Finding", "Report", "check_env"]
