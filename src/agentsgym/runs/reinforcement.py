"""The reinforcement learning of a run: the trainer with the run's callbacks, until it stops."""

from pathlib import Path
from typing import TYPE_CHECKING

from agentsgym.runs.callbacks import (
    GracefulStopCallback,
    MetricsCallback,
    SignalCheckCallback,
    StopRequest,
    TimeBudgetCallback,
    ctrl_c_asks,
)
from agentsgym.runs.files import MetricsFile, RolloutWriter
from agentsgym.runs.progress import Progress
from agentsgym.runs.settings import RunConfig
from agentsgym.runs.signal_check import advice

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer


def train_until_stopped(
    trainer: "GRPOEnvTrainer",
    config: RunConfig,
    *,
    metrics: MetricsFile,
    writer: RolloutWriter,
    progress: Progress,
    used: float,
    checkpoint: Path | None,
) -> str:
    """Train, from a checkpoint if there is one; return the reason why training stopped.

    `used` is the number of seconds of RL before a resume. Raises NoSignal after the first
    generation of a run if it is hopeless.
    """
    request = StopRequest()
    share = None
    if config.max_seconds is not None:
        budget = TimeBudgetCallback(
            config.max_seconds, request, used=used, decay_to=config.time_decay_to
        )
        trainer.add_callback(budget)
        share = budget.share_used
    written = MetricsCallback(metrics, writer, progress, used=used, time_share=share)
    trainer.add_first_callback(written)
    trainer.add_callback(GracefulStopCallback(request, trainer.args.updates_per_generation))
    check = SignalCheckCallback(lambda: trainer.first_figures, progress, stop=config.signal_check)
    if checkpoint is None:
        trainer.add_callback(check)
    with ctrl_c_asks(request, progress.note):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if check.hopeless is not None:
        raise advice(check.hopeless, "after the first generation")
    return _why_it_stopped(trainer, request)


def _why_it_stopped(trainer: "GRPOEnvTrainer", request: StopRequest) -> str:
    if trainer.low_signal.reason is not None:
        return f"no signal: {trainer.low_signal.reason}"
    if trainer.state.global_step >= trainer.state.max_steps:
        return "max_steps"
    return request.reason or "max_steps"
