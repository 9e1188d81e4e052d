"""One training run from its configuration to its summary.

Phases: the model is loaded or warm-started, evaluated, trained, saved, evaluated again. What
belongs to the run is on disk when a phase ends, so that a run that was stopped can go on.
"""

import gc
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import ConfigError
from agentsgym.evaluation import default_cluster, evaluate, select
from agentsgym.report import (
    Figures,
    MetricsFile,
    RolloutWriter,
    RunDirectory,
    Summary,
    draw_curve,
    drop_rollouts_from,
    read_metrics,
    read_summary,
)
from agentsgym.report.summary import Status
from agentsgym.runs.config import RunConfig
from agentsgym.runs.policy import Policy, load_policy, load_pretrained, understanding
from agentsgym.runs.progress import Progress, Silent
from agentsgym.runs.recording import Recorder
from agentsgym.runs.settings import datasets_of, make_env, train_settings, versions
from agentsgym.types import SamplingParams

if TYPE_CHECKING:
    from agentsgym.runs.stopping import StopRequest
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer


def train_run(
    config: RunConfig, *, resume: bool = False, progress: Progress | None = None
) -> Summary:
    """Carry out a run and return its summary; `status` says whether it finished.

    With `resume`, go on from the last checkpoint in the run's directory: optimiser steps are
    those that an uninterrupted run would have made. Ctrl-C during training stops at the next
    generation boundary with a checkpoint. Raises ConfigError or UnknownEnvironment before
    anything heavy is done, ConfigError where the directory holds a run and `resume` is False.
    """
    if not resume and RunDirectory(config.directory).is_run():
        raise ConfigError(f"{config.directory} holds a run already; resume it or choose another")
    return TrainingRun(config, resume, progress or Silent()).carry_out()


class TrainingRun:
    """The state of one run while it is carried out."""

    def __init__(self, config: RunConfig, resume: bool, progress: Progress) -> None:
        self._config = config
        self._directory = RunDirectory(config.directory)
        self._progress = progress
        self._settings: GRPOEnvConfig = train_settings(config)
        self._env = make_env(config)
        self._train_data, self._eval_data = datasets_of(self._env)
        self._eval_rows: list[dict[str, Any]] = list(self._eval_data)
        self._checkpoint = self._directory.last_checkpoint() if resume else None
        self._summary = self._open_summary(resume)
        self._metrics = MetricsFile(self._directory.metrics)
        self._writer = RolloutWriter(self._directory.root)

    def carry_out(self) -> Summary:
        """All phases."""
        import torch
        from transformers import set_seed

        if self._config.threads is not None:
            torch.set_num_threads(self._config.threads)
        self._summary.threads = torch.get_num_threads()
        set_seed(self._config.seed)
        self._start_directory()
        try:
            self._phases()
        except KeyboardInterrupt:
            self._summary.status = "interrupted"
            raise
        finally:
            gc.unfreeze()
            self._summary.write(self._directory.summary)
        return self._summary

    def _phases(self) -> None:
        trained = self._is_trained()
        with self._phase("model", self._config.model):
            trainer = self._trainer(self._policy(trained))
        # What is loaded by now stays. Were it not set aside, Python would search it for garbage
        # again and again, a twentieth of a tiny model's run.
        gc.freeze()
        if self._summary.before is None:
            with self._phase("before", self._episodes()):
                self._summary.before = self._evaluate(trainer, "before")
        if not trained:
            with self._phase("rl", f"{len(self._train_data)} tasks of {self._config.env}"):
                self._train(trainer)
        if self._summary.stop_reason == "interrupted":
            self._close("interrupted")
            return
        with self._phase("after", self._episodes()):
            self._summary.after = self._evaluate(trainer, "after")
        self._close("finished")

    # -- beginning and going on -----------------------------------------------------------------

    def _open_summary(self, resume: bool) -> Summary:
        config = self._config
        fresh = Summary(
            name=config.name,
            seed=config.seed,
            env=config.env,
            env_config=config.env_config,
            model=config.model,
            versions=versions(),
        )
        if not resume or not self._directory.summary.is_file():
            return fresh
        old = read_summary(self._directory.summary)
        kept = ("stop_reason", "model_figures", "before", "steps", "phases", "seconds")
        return fresh.model_copy(update={name: getattr(old, name) for name in kept})

    def _is_trained(self) -> bool:
        """Whether RL is over already, so that a resumed run only has to evaluate."""
        if not self._directory.model.is_dir():
            return False
        reason = self._summary.stop_reason or "interrupted"
        if reason == "max_steps":
            return self._summary.steps >= int(self._settings.max_steps)
        if reason == "max_seconds":
            return self._summary.phases["rl"] >= (self._config.max_seconds or math.inf)
        return reason != "interrupted"

    def _start_directory(self) -> None:
        """Write the configuration, and drop what a resumed run will do again."""
        self._directory.root.mkdir(parents=True, exist_ok=True)
        self._directory.config.write_text(self._config.to_yaml(), encoding="utf-8")
        if not self._is_trained():
            self._rewind(self._checkpoint[0] if self._checkpoint else 0)
        self._summary.write(self._directory.summary)

    def _rewind(self, step: int) -> None:
        self._metrics.drop_after(step)
        drop_rollouts_from(self._directory.root, step)
        lines = [m for m in read_metrics(self._directory.metrics) if m["phase"] == "train"]
        last = lines[-1] if lines else {}
        self._writer.agent_tokens = last.get("total_agent_tokens", 0)
        self._summary.steps = step
        self._summary.phases["rl"] = last.get("seconds", 0.0)

    # -- the phases -----------------------------------------------------------------------------

    def _policy(self, trained: bool) -> Policy:
        if trained:
            return load_pretrained(self._directory.model)
        if self._checkpoint is not None:
            self._progress.note(f"going on from step {self._checkpoint[0]}")
            return load_pretrained(self._checkpoint[1])
        policy = load_policy(self._config, self._progress)
        figures = dict(policy.figures)
        if self._config.model == "tiny" or self._config.model.startswith("builtin:"):
            found = understanding(policy, self._env)
            figures |= found
            if found:
                self._progress.note(
                    "before RL the model puts {consistent_mass:.0%} of its guesses on words that "
                    "agree with the answers; guessing blindly it would be {chance_mass:.0%}".format(
                        **found
                    )
                )
        self._summary.model_figures = figures
        return policy

    def _trainer(self, policy: Policy) -> "GRPOEnvTrainer":
        from transformers import PrinterCallback

        from agentsgym.training import GRPOEnvTrainer

        trainer = GRPOEnvTrainer(
            model=policy.model,
            args=self._settings,
            train_dataset=self._train_data,
            eval_dataset=self._in_training_eval(),
            processing_class=policy.tokenizer,
            rollout_sink=self._writer,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _in_training_eval(self) -> Any:
        """As many tasks as the evaluations before and after have, for `eval_strategy`."""
        if self._settings.eval_strategy == "no":
            return None
        chosen = self._config.eval
        wanted = -(-chosen.episodes // chosen.rollouts_per_task)
        rows = select(self._eval_rows, wanted, seed=chosen.seed, cluster=default_cluster)
        return self._eval_data.select(rows)

    def _evaluate(self, trainer: "GRPOEnvTrainer", phase: str) -> Figures:
        from agentsgym.generation.embedded import EmbeddedEngine

        settings, chosen = self._settings, self._config.eval
        engine = trainer.player.engine
        assert isinstance(engine, EmbeddedEngine)
        engine.reset()
        sampling = SamplingParams(
            settings.max_action_tokens,
            chosen.temperature,
            stop=tuple(settings.stop_strings),
        )
        played = evaluate(
            self._eval_rows,
            DirectOutputAgent(engine, sampling),
            episodes=chosen.episodes,
            rollouts_per_task=chosen.rollouts_per_task,
            seed=chosen.seed,
            envs=trainer.player.envs,
            max_rollout_tokens=settings.max_rollout_tokens,
        )
        self._writer(played.rollouts, {"phase": phase, "step": self._summary.steps})
        if played.evaluation.failures == played.evaluation.episodes:
            raise RuntimeError(f"every rollout failed; the first:\n{played.rollouts[0].error}")
        if played.evaluation.failures:
            self._progress.note(f"{played.evaluation.failures} rollouts failed, see rollouts/")
        return Figures.of(played.evaluation)

    def _train(self, trainer: "GRPOEnvTrainer") -> None:
        from agentsgym.runs.stopping import GracefulStop, StopRequest, TimeBudget, ctrl_c_asks

        used, request = self._summary.phases["rl"], StopRequest()
        share = None
        if self._config.max_seconds is not None:
            budget = TimeBudget(
                self._config.max_seconds,
                request,
                used=used,
                decay_to=self._config.time_decay_to,
            )
            trainer.add_callback(budget)
            share = budget.share_used
        recorder = Recorder(
            self._metrics, self._writer, self._progress, used=used, time_share=share
        )
        trainer.add_callback(recorder)
        trainer.add_callback(GracefulStop(request, self._settings.steps_per_window))
        resume_from = str(self._checkpoint[1]) if self._checkpoint else None
        with ctrl_c_asks(request, self._progress.note):
            trainer.train(resume_from_checkpoint=resume_from)
        self._summary.steps = trainer.state.global_step
        self._summary.agent_tokens = self._writer.agent_tokens
        self._summary.stop_reason = self._why_it_stopped(trainer, request)
        self._save_model(trainer)

    def _why_it_stopped(self, trainer: "GRPOEnvTrainer", request: "StopRequest") -> str:
        if trainer.signal.reason is not None:
            return f"no signal: {trainer.signal.reason}"
        if trainer.state.global_step >= trainer.state.max_steps:
            return "max_steps"
        return request.reason or "max_steps"

    def _save_model(self, trainer: "GRPOEnvTrainer") -> None:
        trainer.save_model(str(self._directory.model))

    def _close(self, status: Status) -> None:
        self._summary.status = status
        with self._phase("report", str(self._directory.picture)):
            draw_curve(self._directory.metrics, self._summary, self._directory.picture)

    # -- small things ---------------------------------------------------------------------------

    @contextmanager
    def _phase(self, name: str, what: str) -> Iterator[None]:
        """Announce a phase, count its time, and leave the summary on disk."""
        self._progress.phase(name, what)
        started = time.monotonic()
        try:
            yield
        finally:
            self._summary.add_time(name, time.monotonic() - started)
            self._summary.write(self._directory.summary)

    def _episodes(self) -> str:
        return f"{self._config.eval.episodes} episodes on held-out tasks"
