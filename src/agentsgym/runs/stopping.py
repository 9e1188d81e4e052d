"""Ending training in good order: on time, and when the user says so."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback

Note = Callable[[str], None]


class StopRequest:
    """A wish to stop that training heeds at the next generation boundary."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def ask(self, reason: str) -> None:
        """Ask for a stop; the first reason stays."""
        self.reason = self.reason or reason


@contextmanager
def ctrl_c_asks(request: StopRequest, note: Note) -> Iterator[None]:
    """Within, the first Ctrl-C (or SIGTERM) asks for a stop and the second one interrupts.

    Without effect outside the main thread, where Python handles no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: Any) -> None:
        if request.reason is not None:
            raise KeyboardInterrupt
        request.ask("interrupted")
        note("stopping after this step; press Ctrl-C again to abort at once")

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class GracefulStop(TrainerCallback):  # type: ignore[misc]
    """Stops training at a generation boundary once it was asked to; any end leaves a checkpoint."""

    def __init__(self, request: StopRequest, updates_per_generation: int) -> None:
        self._request = request
        self._updates_per_generation = updates_per_generation

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Heed the request; within a generation go on, for it would be played again."""
        if self._request.reason and state.global_step % self._updates_per_generation == 0:
            control.should_training_stop = True
        if control.should_training_stop:
            control.should_save = True
        return control


class TimeBudget(TrainerCallback):  # type: ignore[misc]
    """Asks for a stop after `seconds` of training, of which `used` were spent before a resume.

    With `decay_to`, the learning rate falls linearly with the time used, from the schedule's to
    that share of it (so choose a constant schedule).
    """

    def __init__(
        self,
        seconds: float,
        request: StopRequest,
        *,
        used: float = 0.0,
        decay_to: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._request = request
        self._used = used
        self._decay_to = decay_to
        self._clock = clock
        self._started: float | None = None

    def share_used(self) -> float:
        """The share of the budget that is used up, at most 1."""
        running = 0.0 if self._started is None else self._clock() - self._started
        return min(1.0, (self._used + running) / self._seconds)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The clock starts."""
        self._started = self._clock()

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any
    ) -> None:
        """Scale the rate that the schedule has set for this step."""
        if self._decay_to is None or optimizer is None:
            return
        factor = 1.0 - (1.0 - self._decay_to) * self.share_used()
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ask for a stop when the time is over."""
        if self.share_used() >= 1.0:
            self._request.ask("max_seconds")
