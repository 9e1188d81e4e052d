"""Question–answer reasoning sets as an environment: files, built-in questions, reasoning-gym."""

from agentsgym.envs.classical_reasoning.env import ClassicalReasoningEnv
from agentsgym.envs.classical_reasoning.questions import BadQuestions, KnownQuestion, load_questions

__all__ = ["BadQuestions", "ClassicalReasoningEnv", "KnownQuestion", "load_questions"]
