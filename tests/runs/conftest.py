"""Fixtures of runs."""

from workplace import agentsgym, invoke, serve, workplace

__all__ = ["agentsgym", "invoke", "serve", "workplace"]
