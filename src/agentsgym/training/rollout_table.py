"""Rollouts as the rows of a table for people: one line each, the conversation as text."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from agentsgym.evaluation.metrics import record
from agentsgym.training.completions_table import conversation, mean_advantage, printable
from agentsgym.types import Message, Rollout
from agentsgym.types.records import Floats
from agentsgym.types.text import cut, plain

LONGEST = 20_000
"""Characters of a conversation in the table; a longer one loses its middle."""
_LONGEST_TASK = 1_000


@dataclass(frozen=True, slots=True)
class TableRow:
    """One rollout.

    `step` is that of the metrics which are logged beside the table. `reward` is None if the rollout
    failed, `win` the share of scored episodes that were won (None: the environment does not say),
    `advantage` the mean over its agent tokens (None in an evaluation), `stop_reason` has those of
    all scored episodes, `error` the last line of what ended a failed rollout.
    """

    step: int
    phase: str
    env: str
    task: str
    reward: float | None
    win: float | None
    steps: int
    stop_reason: str
    advantage: float | None
    conversation: str
    error: str
    session_id: str

    def cells(self) -> list[Any]:
        """The values in the order of `COLUMNS`."""
        return list(asdict(self).values())


COLUMNS = tuple(field.name for field in fields(TableRow))


def table_rows(
    rollouts: Sequence[Rollout], advantages: Sequence[Floats] | None, step: int, phase: str
) -> list[TableRow]:
    """A row for each rollout; `advantages` has those of their rows, of shape (T,), in order; it may
    go on with those of other rollouts."""
    remaining = None if advantages is None else iter(advantages)
    rows = []
    for rollout in rollouts:
        own = None if remaining is None else [next(remaining) for _ in rollout.rows]
        rows.append(_row(rollout, own, step, phase))
    return rows


def _row(rollout: Rollout, advantages: Sequence[Floats] | None, step: int, phase: str) -> TableRow:
    figures = record(rollout)
    reward = rollout.final_reward
    task = json.dumps(plain(rollout.task_data), ensure_ascii=False)
    return TableRow(
        step=step,
        phase=phase,
        env=rollout.env_class_path,
        task=_clean(cut(task, _LONGEST_TASK)),
        reward=reward if math.isfinite(reward) else None,
        win=figures.win,
        steps=figures.steps,
        stop_reason=", ".join(figures.stop_reasons),
        advantage=None if advantages is None else mean_advantage(rollout, advantages),
        conversation=cut(as_text(map(printable, conversation(rollout))), LONGEST),
        error=_clean((rollout.error or "").strip().rpartition("\n")[2]),
        session_id=rollout.session_id,
    )


def as_text(messages: Iterable[Message]) -> str:
    """The messages, each after its role."""
    return "\n\n".join(f"[{message['role']}] {message['content']}" for message in messages)


def _clean(text: str) -> str:
    return printable({"role": "", "content": text})["content"]
