"""The rollouts of each log as a table in the trackers of `report_to`.

Hugging Face's callbacks send the metrics; TRL's own table (`log_completions`) only goes to W&B and
Trackio. Which trackers there are and how each of them takes a table stands in `WRITERS`.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from transformers import TrainerCallback

from agentsgym.training.rollout_table import COLUMNS, TableRow, table_rows
from agentsgym.types import Rollout
from agentsgym.types.records import Floats

logger = logging.getLogger(__name__)

NAME = "rollouts"
"""The table's name in every tracker."""
_STEP = "train/global_step"  # the x-axis of Hugging Face's callbacks for W&B and Trackio

_PLAIN = " .,;?'"
_REFERENCES = {
    code: f"&#{code};" for code in range(128) if not chr(code).isalnum() and chr(code) not in _PLAIN
}
_REFERENCES[ord("\n")] = "<br>"

Writer = Callable[[Sequence[TableRow], int, Any], None]
"""Writes rows at a step; the third argument is TensorBoard's writer, or None."""


def _to_tensorboard(rows: Sequence[TableRow], step: int, writer: Any) -> None:
    if writer is not None:
        writer.add_text(NAME, markdown_table(rows), step)
        writer.flush()


def _to_wandb(rows: Sequence[TableRow], step: int, _: Any) -> None:
    import wandb

    if wandb.run is not None:
        table = wandb.Table(columns=list(COLUMNS), data=[row.cells() for row in rows])
        wandb.log({NAME: table, _STEP: step})


def _to_trackio(rows: Sequence[TableRow], step: int, _: Any) -> None:
    import pandas as pd
    import trackio

    table = pd.DataFrame([row.cells() for row in rows], columns=list(COLUMNS))
    # With a step of its own it does not move Trackio's count of the logs without one.
    trackio.log({NAME: trackio.Table(dataframe=table), _STEP: step}, step=step)


def _to_mlflow(rows: Sequence[TableRow], step: int, _: Any) -> None:
    import mlflow

    if mlflow.active_run() is not None:
        columns = zip(*(row.cells() for row in rows), strict=True)
        table = dict(zip(COLUMNS, map(list, columns), strict=True))
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
        for name in list(self._writers):
            self._write(name, rows, step)

    def _write(self, name: str, rows: Sequence[TableRow], step: int) -> None:
        try:
            self._writers[name](rows, step, self._tensorboard())
        except Exception as error:  # a tracker may raise anything
            del self._writers[name]
            logger.warning("%s gets no more tables of rollouts: %s", name, error)


def markdown_table(rows: Sequence[TableRow]) -> str:
    """The rows in Markdown, for TensorBoard. It would show markup in a cell, and load images."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(map(_cell, row.cells()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    """A value whose punctuation is written as character references."""
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.translate(_REFERENCES)
