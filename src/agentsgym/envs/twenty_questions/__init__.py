"""Twenty Questions: the environment, its knowledge table, its answerers, its reference player."""

from agentsgym.envs.twenty_questions.agents import OptimalAgent
from agentsgym.envs.twenty_questions.answerer import (
    Answer,
    Answerer,
    CallableAnswerer,
    TableAnswerer,
)
from agentsgym.envs.twenty_questions.env import TwentyQuestionsEnv
from agentsgym.envs.twenty_questions.knowledge import KnowledgeTable, load_table

__all__ = [
    "Answer",
    "Answerer",
    "CallableAnswerer",
    "KnowledgeTable",
    "OptimalAgent",
    "TableAnswerer",
    "TwentyQuestionsEnv",
    "load_table",
]
