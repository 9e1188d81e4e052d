"""Questions from reasoning-gym's generated tasks."""

from collections.abc import Sequence
from types import ModuleType

from agentsgym.envs.classical_reasoning.gym_tasks import refusal
from agentsgym.envs.classical_reasoning.questions import Question
from agentsgym.envs.extras import require
from agentsgym.types.errors import ConfigError


def gym_questions(tasks: Sequence[str], count: int, seed: int) -> list[Question]:
    """`count` distinct questions of each task; fewer if twice that number contains fewer.

    Raises MissingExtra without reasoning-gym, ConfigError for an unknown task.
    """
    package = require("reasoning_gym", "reasoning")
    known = package.factory.DATASETS
    questions: list[Question] = []
    for task in tasks:
        if task not in known:
            names = ", ".join(sorted(known))
            raise ConfigError(
                f"env_config['gym_tasks'] names {task!r}, which reasoning-gym does not know; "
                f"known tasks are {names}"
            )
        reason = refusal(task)
        if reason is not None:
            named = f"env_config['gym_tasks'] names {task!r}"
            raise ConfigError(f"{named}, which is not supported: {reason}")
        questions += _distinct(package, task, count, seed)
    return questions


def _distinct(package: ModuleType, task: str, count: int, seed: int) -> list[Question]:
    size = 2 * count
    entries = package.create_dataset(task, seed=seed, size=size)
    found: dict[str, Question] = {}
    for index in range(size):
        if len(found) == count:
            break
        entry = entries[index]
        text, answer = str(entry["question"]), (str(entry["answer"]),)
        found.setdefault(text, Question(text, answer, "reasoning_gym", task, index, seed, size))
    return list(found.values())
