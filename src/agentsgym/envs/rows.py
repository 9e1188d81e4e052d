"""Dataset rows: which environment, how configured, which task."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.registry import make
from agentsgym.types import AllowImports, Tokenizer

if TYPE_CHECKING:
    from datasets import Dataset


class TaskRow(TypedDict):
    """One row of a dataset."""

    env_class_path: str
    env_config: dict[str, Any]
    task_data: dict[str, Any]


_KINDS = {"env_class_path": str, "env_config": Mapping, "task_data": Mapping}


def check_row(row: Mapping[str, Any], number: int) -> TaskRow:
    """The row as a TaskRow. Raises ValueError with the row's number and what is wrong with it."""
    for key, kind in _KINDS.items():
        if key not in row:
            raise ValueError(f"row {number} has no {key!r}; it has {sorted(row)}")
        if not isinstance(row[key], kind):
            raise ValueError(
                f"row {number}: {key!r} must be {kind.__name__}, got {type(row[key]).__name__}"
            )
    return {
        "env_class_path": row["env_class_path"],
        "env_config": dict(row["env_config"]),
        "task_data": dict(row["task_data"]),
    }


def task_dataset(env: MultistepEnv, tasks: Iterable[Mapping[str, Any]]) -> "Dataset":
    """A dataset of the environment's tasks.

    Both dict columns are `datasets.Json()`: as Arrow structs, rows of different environments
    would fill each other's keys with None, and an empty dict could not be saved.
    """
    from datasets import Dataset, Features, Json, Value

    task_list = [dict(task) for task in tasks]
    columns = {
        "env_class_path": [env.class_path] * len(task_list),
        "env_config": [env.env_config] * len(task_list),
        "task_data": task_list,
    }
    features = Features(
        {"env_class_path": Value("string"), "env_config": Json(), "task_data": Json()}
    )
    return Dataset.from_dict(columns, features=features)


class EnvPool:
    """One environment object per class and config, made when a row first names it.

    `template_options` are further arguments of the tokenizer's chat template, for instance
    `{"enable_thinking": False}`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        allow_imports: AllowImports = False,
        *,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._allow_imports = allow_imports
        self._template_options = template_options
        self._envs: dict[tuple[str, str], MultistepEnv] = {}

    def get(self, row: Mapping[str, Any]) -> MultistepEnv:
        """The environment of a row. Raises UnknownEnvironment or ConfigError."""
        config = row["env_config"]
        key = (row["env_class_path"], json.dumps(config, sort_keys=True, default=repr))
        if key not in self._envs:
            self._envs[key] = make(
                row["env_class_path"],
                self._tokenizer,
                config,
                allow_imports=self._allow_imports,
                template_options=self._template_options,
            )
        return self._envs[key]
