"""Fixtures of the command line."""

from workplace import agentsgym, invoke, serve, workplace

__all__ = ["agentsgym", "invoke", "serve", "workplace"]
