"""Which rollouts an export contains, and its formats, written as a folder of `datasets`, a parquet
file or JSON lines."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsgym.credit.table import differ
from agentsgym.envs import ConfigError
from agentsgym.evaluation.metrics import record
from agentsgym.report.stored import RolloutSet, Source, groups
from agentsgym.runs.files import StoredRollout
from agentsgym.runs.files.directory import replacing
from agentsgym.types import Message, Rollout, Step
from agentsgym.types.text import finite, plain

Json = dict[str, Any]
Lines = Sequence[StoredRollout]

# -- conversations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages up to the agent's last one, and its actions and reflections by the numbers of their
    messages. It may go on over several episodes."""

    messages: list[Message]
    spoken: dict[int, Step]

    @property
    def tools(self) -> Json:
        """The tools that were offered last, as a JSON text, if there were some."""
        *_, last = self.spoken.values()
        return {"tools": json.dumps(plain(list(last.tools)))} if last.tools else {}


def conversations(rollout: Rollout) -> Iterator[Conversation]:
    """The conversations of a rollout. What no game can contain, in a foreign file, is left out."""
    for messages, turns in rollout.conversations():
        places = [n for n, message in enumerate(messages) if message.role == "assistant"]
        if turns and len(turns) == len(places):
            spoken = {place: turn[1] for place, turn in zip(places, turns, strict=True)}
            yield Conversation(messages[: places[-1] + 1], spoken)


def _plain(messages: Sequence[Message]) -> list[Json]:
    return [message.to_dict() for message in messages]


# -- the formats -----------------------------------------------------------------------------------


def messages(lines: Lines) -> Iterator[Json]:
    """One example per conversation."""
    for line in lines:
        for one in conversations(line.rollout):
            yield {
                "messages": _plain(one.messages),
                **one.tools,
                "rewards": [finite(step.reward) for step in one.spoken.values()],
                "malformed": [step.unread for step in one.spoken.values()],
                **about(line),
            }


def tokens(lines: Lines) -> Iterator[Json]:
    """One example per row of tokens: the ids that the model saw and sampled, and 1 for the agent's.
    Rows without an action are left out, and those with ids that no tokenizer has."""
    for line in lines:
        for row in line.rollout.rows:
            mask = row.agent_token_mask.tolist()
            if any(mask) and row.token_ids.min() >= 0:
                yield {
                    "input_ids": row.token_ids.tolist(),
                    "assistant_masks": mask,
                    "sampled": row.sampled,
                    **about(line),
                }


def preference(lines: Lines) -> Iterator[Json]:
    """One example per pair: the conversation before the first action in which two rollouts of a
    task differ, and the actions of the one with more and the one with less reward.

    The rollout with most reward stands beside that with least, the second beside the last but one,
    and so on; each rollout is in one pair at most.
    """
    order = sorted(lines, key=lambda line: -line.rollout.final_reward)
    made: list[Any] = []
    for better, worse in zip(order, reversed(order), strict=True):
        rewards = better.rollout.final_reward, worse.rollout.final_reward
        if rewards[0] < rewards[1] or not differ(rewards):
            return
        pair = _difference(better.rollout, worse.rollout)
        if pair is not None and pair not in made:
            made.append(pair)
            yield {
                **pair,
                "rejected_reward": worse.rollout.final_reward,
                "rejected_rollout": worse.rollout.index,
                **about(better),
            }


def _difference(better: Rollout, worse: Rollout) -> Json | None:
    """The first action that differs; None if the environment's words differ before it."""
    for one, other in zip(conversations(better), conversations(worse), strict=False):
        pairs = zip(one.messages, other.messages, strict=False)
        place = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
        if place is not None:
            pair = {
                "prompt": _plain(one.messages[:place]),
                "chosen": _plain([one.messages[place]]),
                "rejected": _plain([other.messages[place]]),
                **one.tools,
            }
            return pair if place in one.spoken and place in other.spoken else None
        if len(one.messages) != len(other.messages):
            return None
    return None


def about(line: StoredRollout) -> Json:
    """Where an example comes from. `task` and `env_config` are JSON."""
    rollout = line.rollout
    win = record(rollout).win
    return {
        "env": rollout.env_class_path,
        "env_config": _json(rollout.env_config),
        "task": _json(rollout.task_data),
        "reward": rollout.final_reward,
        "win": None if win is None else float(win),
        "phase": line.phase,
        "training_step": line.step,
        "group": rollout.group,
        "rollout": rollout.index,
        "session_id": rollout.session_id,
    }


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(plain(value), ensure_ascii=False, sort_keys=True)


Format = Callable[[Lines], Iterator[Json]]
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


def _select_sets(
    sets: Sequence[RolloutSet], filters: Filters, usual: Sequence[Sequence[str]]
) -> list[RolloutSet]:
    """The sets of the filters' phases and steps. `usual` are phases to take if the filters name
    none, the first choice that the run has. Raises ConfigError if there are none."""
    there = list(dict.fromkeys(one.phase for one in sets))
    choices = usual if not filters.phases else [filters.phases]
    phases = next((one for one in choices if set(one) & set(there)), choices[0])
    low, high = filters.steps or (0, math.inf)
    chosen = [one for one in sets if one.phase in phases and low <= one.step <= high]
    if not chosen:
        steps = "" if filters.steps is None else f" from step {low} to {high}"
        raise ConfigError(
            f"there are no rollouts of the phase {' or '.join(phases)}{steps}; "
            f"the phases there: {', '.join(there) or 'none'}"
        )
    return chosen


def _kept(members: Lines, filters: Filters, failed: bool) -> Lines:
    """The rollouts of a group that pass the filters, the best of them, in their order."""
    lines = [line for line in members if _passes(line, filters, failed)]
    order = sorted(range(len(lines)), key=lambda n: -lines[n].rollout.final_reward)
    return [lines[n] for n in sorted(order[: filters.best])]


def _passes(line: StoredRollout, filters: Filters, failed: bool) -> bool:
    rollout = line.rollout
    if rollout.failed or not math.isfinite(rollout.final_reward):
        return failed and rollout.failed
    if filters.min_reward is not None and rollout.final_reward < filters.min_reward:
        return False
    return not filters.won or record(rollout).win == 1


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
) -> Iterator[tuple[RolloutSet, list[Lines]]]:
    """The sets of the filters' phases, or of the `usual` ones, with the rollouts that pass by
    group, which `counts` counts. Failed rollouts pass only if `failed` says so and no filter asks
    for a reward. Raises ConfigError if there are no such sets."""
    failed = failed and filters.min_reward is None and not filters.won and filters.best is None
    for one in _select_sets(source.sets(), filters, usual):
        contents = one.read()
        counts.read += len(contents.lines)
        if contents.problem is not None:
            counts.problems.append(contents.problem)
        kept = (_kept(members, filters, failed) for members in groups(contents.lines))
        members = [lines for lines in kept if lines]
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
