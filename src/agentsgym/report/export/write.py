"""Which rollouts an export contains, and its formats, written as a folder of `datasets`, a parquet
file or JSON lines."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.evaluation.metrics import record
from agentsgym.report.export.examples import messages, preference, tokens
from agentsgym.report.stored import RolloutSet, Source, groups
from agentsgym.runs.files import StoredRollout
from agentsgym.runs.files.atomic import replacing

Json = dict[str, Any]
Format = Callable[[Sequence[StoredRollout]], Iterator[Json]]
"""The examples of a group's rollouts."""

FORMATS: Mapping[str, Format] = {
    "messages": messages,
    "tokens": tokens,
    "preference": preference,
}

WRITERS = {"inspect": "agentsgym.integrations.inspect.log.write_logs"}
"""Formats that are no dataset: by name the function that writes one, as `write_dataset` does."""

_USUAL = (("train",), ("eval",))


# -- which rollouts --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filters:
    """What to export.

    Args:
        phases: phases of the run; empty: those that the format is meant for.
        steps: the first and the last training step.
        min_reward: rollouts with less reward are left out.
        won: only rollouts of which every scored episode was won.
        best: so many rollouts of each group, those with most reward, of equal ones the first.
    """

    phases: tuple[str, ...] = ()
    steps: tuple[int, int] | None = None
    min_reward: float | None = None
    won: bool = False
    best: int | None = None


def select_sets(
    sets: Sequence[RolloutSet], filters: Filters, usual: Sequence[Sequence[str]]
) -> list[RolloutSet]:
    """The sets of the filters' phases and steps. `usual` are phases to take if the filters name
    none, the first choice that the run has. Raises ConfigError if there are none."""
    there = list(dict.fromkeys(one.phase for one in sets))
    phases = filters.phases or _first(usual, there)
    low, high = filters.steps or (0, math.inf)
    chosen = [one for one in sets if one.phase in phases and low <= one.step <= high]
    if not chosen:
        steps = "" if filters.steps is None else f" from step {low} to {high}"
        raise ConfigError(
            f"there are no rollouts of the phase {' or '.join(phases)}{steps}; "
            f"the phases there: {', '.join(there) or 'none'}"
        )
    return chosen


def _first(usual: Sequence[Sequence[str]], there: Sequence[str]) -> Sequence[str]:
    return next((choice for choice in usual if set(choice) & set(there)), usual[0])


def select_groups(
    lines: Sequence[StoredRollout], filters: Filters, *, failed: bool = False
) -> Iterator[Sequence[StoredRollout]]:
    """The rollouts of each group that pass the filters. Failed rollouts pass only if `failed`
    says so and no filter asks for a reward."""
    failed = failed and filters.min_reward is None and not filters.won and filters.best is None
    for members in groups(lines):
        kept = _best([line for line in members if _passes(line, filters, failed)], filters.best)
        if kept:
            yield kept


def _passes(line: StoredRollout, filters: Filters, failed: bool) -> bool:
    rollout = line.rollout
    if rollout.failed or not math.isfinite(rollout.final_reward):
        return failed and rollout.failed
    if filters.min_reward is not None and rollout.final_reward < filters.min_reward:
        return False
    return not filters.won or record(rollout).win == 1


def _best(lines: Sequence[StoredRollout], count: int | None) -> Sequence[StoredRollout]:
    """The `count` lines with most reward, in their order."""
    if count is None or len(lines) <= count:
        return lines
    order = sorted(range(len(lines)), key=lambda n: (-lines[n].rollout.final_reward, n))
    return [lines[n] for n in sorted(order[:count])]


# -- writing ---------------------------------------------------------------------------------------


@dataclass
class Counts:
    """What an export read and contains. `longest` is the length of its longest row of tokens;
    `problems` has a sentence for each file that could not be read to its end; `called` says what
    the examples are, `show` is a command that shows them."""

    read: int = 0
    rollouts: int = 0
    examples: int = 0
    longest: int = 0
    problems: list[str] = field(default_factory=list)
    called: str = "examples"
    show: str = ""


def selected(
    source: Source,
    filters: Filters,
    usual: Sequence[Sequence[str]],
    counts: Counts,
    *,
    failed: bool = False,
) -> Iterator[tuple[RolloutSet, list[Sequence[StoredRollout]]]]:
    """The sets with rollouts that pass the filters (`select_sets`), and these by group
    (`select_groups`); `counts` counts them."""
    for one in select_sets(source.sets(), filters, usual):
        contents = one.read()
        counts.read += len(contents.lines)
        if contents.problem is not None:
            counts.problems.append(contents.problem)
        members = list(select_groups(contents.lines, filters, failed=failed))
        counts.rollouts += sum(map(len, members))
        if members:
            yield one, members


@contextmanager
def new_place(path: Path) -> Iterator[Path]:
    """`replacing`, for what must not exist yet. Raises ConfigError if it does."""
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} exists; name another place, or delete it")
    with replacing(path) as part:
        yield part


def write_dataset(
    source: Source, form: Format, path: Path, filters: Filters | None = None
) -> Counts:
    """Write the dataset to `path`: a parquet file or JSON lines if it ends with `.parquet` or
    `.jsonl`, else a folder that `datasets.load_from_disk` reads. It appears only when it is whole.

    Raises ConfigError if `path` exists, or if no rollout passes the filters.
    """
    from datasets import Dataset

    counts = Counts()
    with new_place(path) as part:
        sets = selected(source, filters or Filters(), _USUAL, counts)
        examples = [one for _, groups in sets for lines in groups for one in form(lines)]
        counts.examples = len(examples)
        counts.longest = max((len(one.get("input_ids", ())) for one in examples), default=0)
        if not examples:
            raise ConfigError(
                f"none of the {counts.read} rollouts that were read passes the filters and gives "
                "an example in this format"
            )
        options: Json = {}
        if any("tools" in one for one in examples):  # messages then have other keys than others
            examples = [{"tools": None, **one} for one in examples]
            options["on_mixed_types"] = "use_json"
        dataset = Dataset.from_list(examples, **options)
        if path.suffix == ".parquet":
            dataset.to_parquet(part)
        elif path.suffix == ".jsonl":
            dataset.to_json(part, lines=True, force_ascii=False)
        else:
            dataset.save_to_disk(part)
    return counts
