"""Twenty Questions: the environment, its knowledge table, its answerers."""

from agentsgym.envs.twenty_questions.answerer import (
    Answerer,
    CallableAnswerer,
    TableAnswerer,
    Verdict,
)
from agentsgym.envs.twenty_questions.env import TwentyQuestionsEnv
from agentsgym.envs.twenty_questions.knowledge import KnowledgeTable, load_table

__all__ = [
    "Answerer",
    "CallableAnswerer",
    "KnowledgeTable",
    "TableAnswerer",
    "TwentyQuestionsEnv",
    "Verdict",
    "load_table",
]
