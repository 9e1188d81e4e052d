"""Twenty Questions: the environment, its knowledge table, its answerers."""

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
    "TableAnswerer",
    "TwentyQuestionsEnv",
    "load_table",
]
