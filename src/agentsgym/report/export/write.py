"""The formats of an export, written as a folder of `datasets`, a parquet file or JSON lines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError
from agentsgym.report.export.examples import (
    messages,
    preference,
    prompt_completion,
    tokens,
)
from agentsgym.report.export.selection import Filters, select_groups, select_sets
from agentsgym.report.stored import Source
from agentsgym.runs.files import StoredRollout
from agentsgym.runs.files.atomic import replacing

if TYPE_CHECKING:
    from datasets import Dataset

Json = dict[str, Any]
_CHAT = [{"role": "string", "content": "string"}]
_ABOUT = {
    "env": "string",
    "env_config": "string",
    "task": "string",
    "reward": "float64",
    "win": "float64",
    "phase": "string",
    "training_step": "int64",
    "group": "int64",
    "rollout": "int64",
    "session_id": "string",
}


@dataclass(frozen=True, slots=True)
class Format:
    """One format: `examples` of a group's rollouts, and `columns` with their types (a list has the
    type of its entries)."""

    examples: Callable[[Sequence[StoredRollout]], Iterator[Json]]
    columns: Mapping[str, Any]


FORMATS: Mapping[str, Format] = {
    "messages": Format(
        messages,
        {"messages": _CHAT, "rewards": ["float64"], "malformed": ["bool"], **_ABOUT},
    ),
    "prompt-completion": Format(
        prompt_completion,
        {
            "prompt": _CHAT,
            "completion": _CHAT,
            "episode": "int64",
            "step": "int64",
            "step_reward": "float64",
            **_ABOUT,
        },
    ),
    "tokens": Format(
        tokens,
        {"input_ids": ["int32"], "assistant_masks": ["int8"], "sampled": "bool", **_ABOUT},
    ),
    "preference": Format(
        preference,
        {
            "prompt": _CHAT,
            "chosen": _CHAT,
            "rejected": _CHAT,
            "rejected_reward": "float64",
            "rejected_rollout": "int64",
            **_ABOUT,
        },
    ),
}

_USUAL = (("train",), ("eval",))
_PART = 4096


@dataclass
class Counts:
    """What an export read and contains. `longest` is the length of its longest row of tokens;
    `problems` has a sentence for each file that could not be read to its end."""

    read: int = 0
    rollouts: int = 0
    examples: int = 0
    longest: int = 0
    problems: list[str] = field(default_factory=list)


def write_dataset(
    source: Source, form: Format, path: Path, filters: Filters | None = None
) -> Counts:
    """Write the dataset to `path`: a parquet file or JSON lines if it ends with `.parquet` or
    `.jsonl`, else a folder that `datasets.load_from_disk` reads. It appears only when it is whole.

    Raises ConfigError if `path` exists, or if no rollout passes the filters.
    """
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} exists; name another place, or delete it")
    counts = Counts()
    dataset = make_dataset(source, form, filters or Filters(), counts)
    with replacing(path) as part:
        if path.suffix == ".parquet":
            dataset.to_parquet(part)
        elif path.suffix == ".jsonl":
            dataset.to_json(part, lines=True, force_ascii=False)
        else:
            dataset.save_to_disk(part)
    return counts


def make_dataset(source: Source, form: Format, filters: Filters, counts: Counts) -> "Dataset":
    """The examples as a dataset in memory. Raises ConfigError if there are none."""
    from datasets import Dataset, Features, concatenate_datasets

    features = Features({name: _feature(kind) for name, kind in form.columns.items()})
    examples = _examples(source, form, filters, counts)
    parts = []
    while part := list(islice(examples, _PART)):
        parts.append(Dataset.from_list(part, features=features))
    if not parts:
        raise ConfigError(_empty(counts))
    return concatenate_datasets(parts)


def _examples(
    source: Source, form: Format, filters: Filters, counts: Counts
) -> Iterator[Mapping[str, Any]]:
    for one in select_sets(source.sets(), filters, _USUAL):
        contents = one.read()
        counts.read += len(contents.lines)
        if contents.problem is not None:
            counts.problems.append(contents.problem)
        for lines in select_groups(contents.lines, filters):
            counts.rollouts += len(lines)
            for example in form.examples(lines):
                counts.examples += 1
                counts.longest = max(counts.longest, len(example.get("input_ids", ())))
                yield example


def _feature(kind: Any) -> Any:
    from datasets import List, Value

    if isinstance(kind, list):
        return List(_feature(kind[0]))
    if isinstance(kind, dict):
        return {name: _feature(inner) for name, inner in kind.items()}
    return Value(kind)


def _empty(counts: Counts) -> str:
    if not counts.rollouts:
        return f"none of the {counts.read} rollouts that were read passes the filters"
    return f"the {counts.rollouts} rollouts that pass the filters give no example in this format"
