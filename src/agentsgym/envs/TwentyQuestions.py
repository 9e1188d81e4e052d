"""Twenty Questions under its registered name."""

from agentsgym.envs.twenty_questions import TwentyQuestionsEnv

__all__ = ["TwentyQuestionsEnv"]
