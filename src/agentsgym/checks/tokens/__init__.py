"""Checking a tokenizer: `check_tokens` plays conversations and reports what is recorded of them."""

from agentsgym.checks.tokens.check import check_tokens
from agentsgym.checks.tokens.conversation import Conversation
from agentsgym.checks.tokens.report import TokenReport
from agentsgym.checks.tokens.row_breaks import RowBreak
from agentsgym.checks.tokens.stability import Stability

__all__ = ["Conversation", "RowBreak", "Stability", "TokenReport", "check_tokens"]
