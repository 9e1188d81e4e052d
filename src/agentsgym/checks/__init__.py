"""Checking without a model: `check_env` plays an environment and reports its faults, `check_tokens`
plays conversations with a tokenizer and reports what is recorded of them."""

from agentsgym.checks.check import CheckFailed, Report, check_env
from agentsgym.checks.context import Finding
from agentsgym.checks.token_report import TokenReport
from agentsgym.checks.tokens import check_tokens

__all__ = ["CheckFailed", "Finding", "Report", "TokenReport", "check_env", "check_tokens"]
