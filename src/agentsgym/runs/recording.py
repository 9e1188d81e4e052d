"""Callback that writes what training logs to metrics.jsonl and reports it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback

from agentsgym.runs.files import MetricsFile, RolloutWriter
from agentsgym.runs.progress import Progress, StepReport

# What the Hugging Face trainer says once at the end; the summary has it.
_FINAL = "train_runtime"


class Recorder(TrainerCallback):  # type: ignore[misc]
    """Writes one line per logged optimiser step and per evaluation.

    Beside the trainer's values a line has `seconds` (of RL so far, over all resumes); a training
    line also `total_agent_tokens` (sampled so far) and `tokens_per_second` (since the last line).
    """

    def __init__(
        self,
        metrics: MetricsFile,
        writer: RolloutWriter,
        progress: Progress,
        *,
        used: float = 0.0,
        time_share: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._writer = writer
        self._progress = progress
        self._used = used
        self._time_share = time_share
        self._clock = clock
        self._started = self._last = clock()
        self._tokens = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The clock starts."""
        self._started = self._last = self._clock()
        self._tokens = self._writer.agent_tokens

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Write a line, and report it if it is a training step's."""
        if not logs or _FINAL in logs:
            return
        phase = "eval" if any(name.startswith("eval_") for name in logs) else "train"
        values = dict(logs) | {"seconds": self._used + self._clock() - self._started}
        if phase == "train":
            values["total_agent_tokens"] = self._writer.agent_tokens
            values["tokens_per_second"] = self._rate()
        self._metrics.append(phase, state.global_step, values)
        if phase == "train":
            self._progress.step(self._report(state, values))

    def _rate(self) -> float:
        now, tokens = self._clock(), self._writer.agent_tokens
        rate = (tokens - self._tokens) / max(now - self._last, 1e-9)
        self._last, self._tokens = now, tokens
        return rate

    def _report(self, state: Any, values: Mapping[str, Any]) -> StepReport:
        by_steps = state.global_step / max(state.max_steps, 1)
        by_time = self._time_share() if self._time_share else 0.0
        timed = by_time > by_steps
        return StepReport(
            step=state.global_step,
            max_steps=None if timed else state.max_steps,
            share=max(by_steps, by_time),
            seconds=values["seconds"],
            values=values,
        )
