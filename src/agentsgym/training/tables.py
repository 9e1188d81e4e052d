"""Rollouts as tables: TRL's table of completions (`log_completions`), and one in the trackers.

Hugging Face's callbacks send the metrics; TRL's own table goes to the terminal, W&B and Trackio.
Which trackers get ours, and how each of them takes a table, stands in `WRITERS`.
"""

import json
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
from transformers import TrainerCallback

from agentsgym.evaluation.metrics import record
from agentsgym.types import Message, Rollout
from agentsgym.types.records import Floats
from agentsgym.types.text import cut, plain

logger = logging.getLogger(__name__)

# A table is printed on a terminal, which obeys control characters, and stored as UTF-8, which has
# no lone surrogates: both are replaced by visible symbols.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_PICTURES |= dict.fromkeys([*range(0x7F, 0xA0), *range(0xD800, 0xE000)], 0xFFFD)


@dataclass(frozen=True, slots=True)
class CompletionLine:
    """One rollout: the conversation before its first action and from there on, its reward (NaN if
    it failed), and the mean advantage of its agent tokens."""

    prompt: list[Message]
    completion: list[Message]
    reward: float
    advantage: float


def completion_lines(
    rollouts: Sequence[Rollout], advantages: Sequence[Floats]
) -> list[CompletionLine]:
    """A line for each rollout; `advantages` has those of its rows, of shape (T,), in order."""
    lines = []
    for rollout, mean in zip(rollouts, _mean_advantages(rollouts, advantages), strict=True):
        messages = _conversation(rollout)
        prompt = list(takewhile(lambda message: message["role"] != "assistant", messages))
        lines.append(
            CompletionLine(prompt, messages[len(prompt) :], rollout.final_reward, mean or 0.0)
        )
    return lines


def _mean_advantages(
    rollouts: Sequence[Rollout], advantages: Sequence[Floats] | None
) -> Iterator[float | None]:
    """The mean over each rollout's agent tokens; None without advantages."""
    remaining = None if advantages is None else iter(advantages)
    for rollout in rollouts:
        if remaining is None:
            yield None
            continue
        values = [next(remaining)[row.agent_token_mask == 1] for row in rollout.rows]
        tokens = np.concatenate(values) if values else np.zeros(0)
        yield float(tokens.mean()) if len(tokens) else 0.0


def _conversation(rollout: Rollout) -> list[Message]:
    """All messages of a trial, each once, with visible symbols for what a table cannot hold."""
    return [
        {"role": message["role"], "content": message["content"].translate(_PICTURES)}
        for episode in rollout.episodes
        for message in episode.messages
    ]


# -- the table in the trackers ---------------------------------------------------------------------

NAME = "rollouts"
"""The table's name in every tracker."""
LONGEST = 20_000
"""Characters of a conversation in the table; a longer one loses its middle."""
_LONGEST_TASK = 1_000
_STEP = "train/global_step"  # the x-axis of Hugging Face's callbacks for W&B and Trackio

COLUMNS = (
    "step",
    "phase",
    "env",
    "task",
    "reward",
    "win",
    "steps",
    "stop_reason",
    "advantage",
    "conversation",
    "error",
    "session_id",
)
"""`step` is that of the metrics which are logged beside the table. `reward` is None if the rollout
failed, `win` the share of scored episodes that were won (None: the environment does not say),
`advantage` the mean over its agent tokens (None in an evaluation), `stop_reason` has those of all
scored episodes, `error` the last line of what ended a failed rollout."""

Cells = tuple[Any, ...]
"""A row of the table, in the order of `COLUMNS`."""


def table_rows(
    rollouts: Sequence[Rollout], advantages: Sequence[Floats] | None, step: int, phase: str
) -> list[Cells]:
    """A row for each rollout; `advantages` has those of their rows, of shape (T,), in order; it may
    go on with those of other rollouts."""
    means = _mean_advantages(rollouts, advantages)
    return [_cells(r, mean, step, phase) for r, mean in zip(rollouts, means, strict=True)]


def _cells(rollout: Rollout, advantage: float | None, step: int, phase: str) -> Cells:
    figures, reward = record(rollout), rollout.final_reward
    task = json.dumps(plain(rollout.task_data), ensure_ascii=False)
    messages = (f"[{message['role']}] {message['content']}" for message in _conversation(rollout))
    return (
        step,
        phase,
        rollout.env_class_path,
        cut(task, _LONGEST_TASK).translate(_PICTURES),
        reward if math.isfinite(reward) else None,
        figures.win,
        figures.steps,
        ", ".join(figures.stop_reasons),
        advantage,
        cut("\n\n".join(messages), LONGEST),
        (rollout.error or "").strip().rpartition("\n")[2].translate(_PICTURES),
        rollout.session_id,
    )


Writer = Callable[[Sequence[Cells], int, Any], None]
"""Writes rows at a step; the third argument is TensorBoard's writer, or None."""


def _to_tensorboard(rows: Sequence[Cells], step: int, writer: Any) -> None:
    if writer is not None:
        writer.add_text(NAME, markdown_table(rows), step)
        writer.flush()


def _to_wandb(rows: Sequence[Cells], step: int, _: Any) -> None:
    import wandb

    if wandb.run is not None:
        table = wandb.Table(columns=list(COLUMNS), data=[list(row) for row in rows])
        wandb.log({NAME: table, _STEP: step})


def _to_trackio(rows: Sequence[Cells], step: int, _: Any) -> None:
    import pandas as pd
    import trackio

    table = pd.DataFrame(rows, columns=list(COLUMNS))
    # With a step of its own it does not move Trackio's count of the logs without one.
    trackio.log({NAME: trackio.Table(dataframe=table), _STEP: step}, step=step)


def _to_mlflow(rows: Sequence[Cells], step: int, _: Any) -> None:
    import mlflow

    if mlflow.active_run() is not None:
        table = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
        # A file per step, because MLflow reads and writes the whole of one that it appends to.
        mlflow.log_table(table, f"{NAME}/step-{step:06d}.json")


WRITERS: Mapping[str, Writer] = {
    "tensorboard": _to_tensorboard,
    "wandb": _to_wandb,
    "trackio": _to_trackio,
    "mlflow": _to_mlflow,
}
"""The trackers that get the table, by their names in `report_to`."""


class TrackerTables(TrainerCallback):  # type: ignore[misc]
    """Keeps the first `most` rollouts of the last generation and evaluation of this process, and
    writes them to the trackers with the next log. Only the first process's are written.

    A tracker that fails gets no more tables; training goes on. `tensorboard` returns the writer of
    Hugging Face's callback.
    """

    def __init__(
        self, trackers: Collection[str], most: int, tensorboard: Callable[[], Any]
    ) -> None:
        self._writers = {name: WRITERS[name] for name in trackers if name in WRITERS}
        self._most = most
        self._tensorboard = tensorboard
        self._kept: dict[str, tuple[list[Rollout], Sequence[Floats] | None]] = {}

    def keep(self, rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> None:
        """Take rollouts, with what a rollout sink is told about them."""
        if self._writers and self._most:
            phase = "_".join(filter(None, [info["phase"], info.get("dataset")]))
            self._kept[phase] = list(rollouts[: self._most]), info["advantages"]

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the rollouts that no table has yet."""
        kept, self._kept = self._kept, {}
        if not kept or not state.is_world_process_zero:
            return
        step = state.global_step
        rows = [
            row
            for phase, (rollouts, advantages) in kept.items()
            for row in table_rows(rollouts, advantages, step, phase)
        ]
        for name, writer in list(self._writers.items()):
            try:
                writer(rows, step, self._tensorboard())
            except Exception as error:  # a tracker may raise anything
                del self._writers[name]
                logger.warning("%s gets no more tables of rollouts: %s", name, error)


_PLAIN = " .,;?'"
_REFERENCES = {
    code: f"&#{code};" for code in range(128) if not chr(code).isalnum() and chr(code) not in _PLAIN
}
_REFERENCES[ord("\n")] = "<br>"


def markdown_table(rows: Sequence[Cells]) -> str:
    """The rows in Markdown, for TensorBoard. It would show markup in a cell, and load images."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    """A value whose punctuation is written as character references."""
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.translate(_REFERENCES)
