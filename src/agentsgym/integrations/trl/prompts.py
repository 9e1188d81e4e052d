"""Dataset rows as TRL's prompts: their JSON, because TRL hands its `rollout_func` nothing else."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentsgym.envs.dataset import TaskRow, check_row
from agentsgym.types.text import short_repr

if TYPE_CHECKING:
    from datasets import Dataset


def task_prompt(row: Mapping[str, Any]) -> str:
    """The prompt that stands for a row of the dataset schema: its JSON. For a stream:
    `stream.map(lambda row: {"prompt": task_prompt(row)})`."""
    return json.dumps(check_row(row, 0), ensure_ascii=False)


def prompt_dataset(rows: Iterable[Mapping[str, Any]]) -> "Dataset":
    """A dataset of one column `prompt`, for TRL, of the rows of ours.

    Raises ValueError with the number of a row that does not follow the row schema.
    """
    from datasets import Dataset

    prompts = [task_prompt(check_row(row, number)) for number, row in enumerate(rows)]
    return Dataset.from_dict({"prompt": prompts})


def rows_of(prompts: Sequence[Any]) -> list[TaskRow]:
    """The rows that prompts stand for; a prompt is a text, or messages of which the last one is
    the text. Raises ValueError with the number of a prompt that stands for none."""
    return [_row(prompt, number) for number, prompt in enumerate(prompts)]


def _row(prompt: Any, number: int) -> TaskRow:
    text = prompt
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], Mapping):
        text = prompt[-1].get("content")
    try:
        return check_row(json.loads(text), number)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(
            f"prompt {number} is no task: {short_repr(text, 200)}; make the trainer's datasets "
            "with agentsgym.integrations.trl.prompt_dataset(rows)"
        ) from None
