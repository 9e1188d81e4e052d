"""The files in which a run finds its tasks, in the place of the environment's own."""

from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.task_file import TaskFile

LINES = (".jsonl", ".ndjson")
MOST_HELD_OUT = 100_000
"""Rows of an evaluation set, which is kept in memory."""


def open_tasks(key: str, path: str) -> Any:
    """The rows of the file that the setting `key` names: JSON lines, an Arrow file, or a directory
    that `Dataset.save_to_disk` wrote. Rows are read when they are drawn.

    Raises ConfigError if there is no such file, or it is of another kind.
    """
    where = Path(path).expanduser()
    if not where.exists():
        raise ConfigError(f"{key}: there is no file {path}")
    try:
        return _plain(key, path, _opened(key, where))
    except ConfigError:
        raise
    except Exception as error:  # pyarrow and datasets raise many kinds of errors
        raise ConfigError(f"{key}: {path} cannot be read: {error}") from None


def _opened(key: str, path: Path) -> Any:
    from datasets import Dataset, load_from_disk

    if path.is_dir():
        found = load_from_disk(str(path))
        if isinstance(found, dict):
            names = ", ".join(f"{path / name}" for name in found)
            raise ConfigError(f"{key}: {path} holds several sets; name one of {names}")
        return found
    if path.suffix in LINES:
        return TaskFile(path)
    if path.suffix == ".arrow":
        return Dataset.from_file(str(path))
    raise ConfigError(
        f"{key}: {path} is neither a file of JSON lines ({', '.join(LINES)}), nor an .arrow file, "
        "nor a directory of Dataset.save_to_disk"
    )


def _plain(key: str, path: str, rows: Any) -> Any:
    """The rows. Raises ConfigError if reading one would open another file or an address: rows of
    images and the like may name them."""
    columns = {} if isinstance(rows, TaskFile) else rows.features
    named = [name for name, kind in columns.items() if _opens_files(kind)]
    if named:
        raise ConfigError(
            f"{key}: {path}: column {named[0]!r} holds images, sounds or other files; a task has "
            "only texts, numbers, lists and dicts"
        )
    return rows


def _opens_files(kind: Any) -> bool:
    """Whether the values of a column's type are decoded by more than parsing JSON."""
    if isinstance(kind, dict):
        return any(map(_opens_files, kind.values()))
    if isinstance(kind, list | tuple):
        return any(map(_opens_files, kind))
    inner = getattr(kind, "feature", None)
    if inner is not None:
        return _opens_files(inner)
    return hasattr(kind, "decode_example") and type(kind).__name__ != "Json"


def held_out_tasks(path: str) -> Any:
    """The rows of an evaluation set. Raises ConfigError also if there are too many."""
    rows = open_tasks("data.eval", path)
    if len(rows) > MOST_HELD_OUT:
        raise ConfigError(
            f"data.eval: {path} has {len(rows)} rows; an evaluation set may have {MOST_HELD_OUT}, "
            "of which eval.episodes are played"
        )
    return rows
