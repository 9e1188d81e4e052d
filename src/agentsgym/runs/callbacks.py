"""The reinforcement learning of a run: the trainer with the run's callbacks (metrics, time limit,
graceful stop), until it stops."""

import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from agentsgym.runs.files import MetricsFile, RolloutWriter
from agentsgym.runs.from_config import NO_LIMIT
from agentsgym.runs.processes import handled
from agentsgym.runs.progress import Progress, StepReport
from agentsgym.runs.settings import RunConfig

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer
    from agentsgym.training.ranks import Ranks

Note = Callable[[str], None]
Finding = Mapping[str, Any]
Examine = Callable[[Path], Sequence[Finding]]
"""Returns what goes wrong in a run's directory: the faults of the report `doctor` as dicts."""

# A message of the Hugging Face trainer at the end of training; the summary has its content.
_FINAL = "train_runtime"
_EXAMINED_AT = 0.5  # share of the run


class StopCallback(TrainerCallback):  # type: ignore[misc]
    """Stops training at the end of a generation once a stop was requested or `max_seconds` of RL
    are used up. Every stop, also another callback's, saves a checkpoint.

    `seconds` returns those of RL so far. `requested` is what this rank was asked for, and `reason`
    why training stops, the same on all ranks. The time is that of rank 0.
    """

    def __init__(
        self,
        ranks: "Ranks",
        seconds: Callable[[], float],
        updates_per_generation: int,
        max_seconds: float | None = None,
    ) -> None:
        self._ranks = ranks
        self._seconds = seconds
        self._updates_per_generation = updates_per_generation
        self._max_seconds = max_seconds or math.inf
        self.requested: str | None = None
        self.reason: str | None = None

    def request(self, reason: str) -> None:
        """Request a stop of all ranks; the first reason is kept."""
        self.requested = self.requested or reason

    def share_used(self) -> float:
        """The used fraction of the time, at most 1."""
        return min(1.0, self._seconds() / self._max_seconds)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Obey a request, but not within a generation, which would have to be played again."""
        if self.share_used() >= 1.0:
            self.request("max_seconds")
        if state.global_step % self._updates_per_generation == 0:
            requests = self._ranks.gather([self.requested])
            self.reason = next((request for request in requests if request), None)
        if self.reason is not None:
            control.should_training_stop = True
        if control.should_training_stop:
            control.should_save = True
        return control


class CheckpointCallback(TrainerCallback):  # type: ignore[misc]
    """Saves a checkpoint at the end of a generation once `every` seconds have passed since the last
    one, or since the beginning; less often where that would take more than a tenth of the time.
    Rank 0 decides."""

    def __init__(self, ranks: "Ranks", updates_per_generation: int, every: float) -> None:
        self._ranks = ranks
        self._updates_per_generation = updates_per_generation
        self._every = every
        self._last = time.monotonic()
        self._asked: float | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to measure the time."""
        self._last = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Ask for a checkpoint if it is time."""
        if state.global_step % self._updates_per_generation == 0:
            due = time.monotonic() - self._last >= self._every
            control.should_save |= self._ranks.gather([due])[0]
        self._asked = time.monotonic()
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure how long the checkpoint took."""
        self._last = time.monotonic()
        if self._asked is not None:
            self._every = max(self._every, 10 * (self._last - self._asked))


class ExaminationCallback(TrainerCallback):  # type: ignore[misc]
    """Examines the run once, after half of it, and notes what rank 0 finds: by then what does not
    learn can be told from what has only begun, and half of the time is left."""

    def __init__(
        self,
        ranks: "Ranks",
        share: Callable[[], float],
        find: Callable[[], Sequence[Finding]],
        note: Note,
    ) -> None:
        self._ranks = ranks
        self._share = share
        self._find = find
        self._note = note
        self._done = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Examine it if it is time."""
        share = max(self._share(), state.global_step / max(1, state.max_steps))
        if not self._done and self._ranks.gather([share >= _EXAMINED_AT])[0]:
            self._done = True
            for one in self._ranks.first(self._find):
                self._note(f"{one['title']} ({one['evidence'][0]}) Next: {one['next']}")


def ctrl_c_stops(stop: StopCallback, note: Note) -> AbstractContextManager[None]:
    """Inside the block, Ctrl-C and SIGTERM request a stop, and Ctrl-C after that interrupts. A
    second SIGTERM does not: a cluster's scheduler signals this process and the one that forwards
    signals to it."""

    def handle(number: int, frame: Any) -> None:
        if stop.requested is not None:
            if number == signal.SIGTERM:
                return
            raise KeyboardInterrupt
        stop.request("interrupted")
        note("stopping after this step; press Ctrl-C again to abort at once")

    return handled(handle, signal.SIGINT, signal.SIGTERM)


def sigterm_interrupts() -> AbstractContextManager[None]:
    """Inside the block, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that a run that is
    killed while it loads or evaluates still writes its end."""

    def handle(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    return handled(handle, signal.SIGTERM)


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes one line per logged optimizer step and per evaluation.

    In addition to the trainer's values a line has `seconds` (of RL so far, over all resumes); a
    training line also `total_agent_tokens` (so far) and `tokens_per_second` (since the last line),
    of all ranks. Those of a training line are added to `logs` too, so that callbacks after this
    one, which send them to trackers, have them. Rank 0 writes.
    """

    def __init__(
        self,
        ranks: "Ranks",
        metrics: MetricsFile,
        writer: RolloutWriter,
        progress: Progress,
        seconds: Callable[[], float],
        time_share: Callable[[], float],
    ) -> None:
        self._ranks = ranks
        self._metrics = metrics
        self._writer = writer
        self._progress = progress
        self._seconds = seconds
        self._time_share = time_share
        self._last, self._tokens = 0.0, 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to measure the rate of tokens."""
        self._last, self._tokens = self._seconds(), self._all_tokens()

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Write a line; report it if it belongs to a training step."""
        if not logs or _FINAL in logs:
            return
        phase = "eval" if any(name.startswith("eval_") for name in logs) else "train"
        values = dict(logs) | {"seconds": self._seconds()}
        if phase == "train":
            values["total_agent_tokens"] = tokens = self._all_tokens()
            values["tokens_per_second"] = self._rate(tokens)
            logs.update(values)
        if self._ranks.rank == 0:
            self._metrics.append(phase, state.global_step, values)
        if phase == "train":
            self._progress.step(self._report(state, values))

    def _all_tokens(self) -> int:
        return sum(self._ranks.gather([self._writer.agent_tokens]))

    def _rate(self, tokens: int) -> float:
        now = self._seconds()
        rate = (tokens - self._tokens) / max(now - self._last, 1e-9)
        self._last, self._tokens = now, tokens
        return rate

    def _report(self, state: Any, values: Mapping[str, Any]) -> StepReport:
        by_steps = state.global_step / max(state.max_steps, 1)
        by_time = self._time_share()
        return StepReport(
            step=state.global_step,
            max_steps=None if state.max_steps >= NO_LIMIT else state.max_steps,
            share=max(by_steps, by_time),
            seconds=values["seconds"],
            values=values,
        )


def train_until_stopped(
    trainer: "GRPOEnvTrainer",
    config: RunConfig,
    *,
    metrics: MetricsFile,
    writer: RolloutWriter,
    progress: Progress,
    used: float,
    checkpoint: Path | None,
    find: Callable[[], Sequence[Finding]],
    best: TrainerCallback | None = None,
) -> str:
    """Train, from a checkpoint if there is one; return the reason why training stopped.

    `used` is the number of seconds of RL before a resume, `find` returns what goes wrong, and
    `best` keeps the best weights.
    """
    began = time.monotonic() - used

    def seconds() -> float:
        return time.monotonic() - began

    updates = trainer.args.updates_per_generation
    stop = StopCallback(trainer.ranks, seconds, updates, config.max_seconds)
    trainer.add_first_callback(
        MetricsCallback(trainer.ranks, metrics, writer, progress, seconds, stop.share_used)
    )
    trainer.add_callback(stop)
    trainer.add_callback(ExaminationCallback(trainer.ranks, stop.share_used, find, progress.note))
    if trainer.args.save_strategy != "no":
        every = config.checkpoint_seconds
        trainer.add_callback(CheckpointCallback(trainer.ranks, updates, every))
    if best is not None:
        trainer.add_callback(best)
    with ctrl_c_stops(stop, progress.note):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if trainer.low_signal.reason is not None:
        return f"no signal: {trainer.low_signal.reason}"
    if trainer.state.global_step >= trainer.state.max_steps:
        return "max_steps"
    return stop.reason or "max_steps"
