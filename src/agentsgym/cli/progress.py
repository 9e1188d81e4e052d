"""Progress of a training run on the terminal."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import rich.progress
from rich.progress import (
    BarColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from agentsgym.cli.console import out, shown
from agentsgym.cli.tables import duration, share
from agentsgym.runs import Progress, StepReport

_PHASES = {
    "model": "Model",
    "before": "Evaluation before",
    "warm_start": "Warm start",
    "warm_started": "Evaluation after the warm start",
    "rl": "Training",
    "after": "Evaluation after",
    "report": "Picture",
}
# Seconds between lines if the terminal cannot redraw.
_LINE_SECONDS = 20.0


class Bars(Progress):
    """A bar if the terminal can redraw, otherwise lines."""

    def __init__(self, bar: rich.progress.Progress) -> None:
        self._bar = bar
        self._live = out.is_terminal
        self._task: TaskID | None = None
        self._last_line = time.monotonic()

    def phase(self, name: str, what: str) -> None:
        """Announce a phase and start its bar."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        title = _PHASES.get(name, name)
        out.print(f"[bold]{title}[/]: {shown(what)}")
        self._task = self._bar.add_task(title, total=None, figures="")
        self._last_line = time.monotonic()

    def warm_start(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        """Show the progress of the warm start."""
        self._show(step / steps, f"step {step}/{steps}  loss {values.get('loss', 0.0):.3f}")

    def step(self, report: StepReport) -> None:
        """Show a training step's figures."""
        self._show(report.share, figures(report))

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        out.print(shown(text), style="yellow")

    def _show(self, done: float, text: str) -> None:
        if self._live and self._task is not None:
            self._bar.update(self._task, total=1.0, completed=done, figures=text)
        elif time.monotonic() - self._last_line >= _LINE_SECONDS:
            self._last_line = time.monotonic()
            out.print(f"  {done:4.0%}  {text}", soft_wrap=True)


@contextmanager
def bars() -> Iterator[Bars]:
    """Progress on the terminal inside the block."""
    with rich.progress.Progress(
        TextColumn("  [bold]{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    ) as bar:
        yield Bars(bar)


def figures(report: StepReport) -> str:
    """The most important figures on one line."""
    values: Mapping[str, Any] = report.values
    limit = "" if report.max_steps is None else f"/{report.max_steps}"
    left = report.seconds * (1 - report.share) / max(report.share, 1e-9)
    parts = [
        f"step {report.step}{limit}",
        _part("win", values.get("win_rate")),
        f"reward {values['reward']:.3f}" if values.get("reward") is not None else "",
        _part("no signal", values.get("groups_without_signal")),
        f"{values.get('tokens_per_second', 0.0):,.0f} tok/s",
        f"{duration(left)} left",
    ]
    return "  ".join(part for part in parts if part)


def _part(name: str, value: float | None) -> str:
    return "" if value is None else f"{name} {share(value)}"
