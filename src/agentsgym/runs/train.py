"""One training run from its configuration to its summary.

Phases: the model is loaded or warm-started, evaluated, trained, saved, evaluated again. At the end
of each phase all data of the run is on disk, so that a stopped run can be resumed.

A run may consist of several processes (ranks), which go through the phases together. Rank 0 decides
what a phase starts from and writes the run's files; each rank writes the rollouts that it played.
"""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from filelock import BaseFileLock

from agentsgym.evaluation import Evaluation
from agentsgym.runs.auto import resolved
from agentsgym.runs.callbacks import (
    BestWeights,
    Examine,
    Finding,
    MetricsCallback,
    RunCallback,
    ctrl_c_stops,
    sigterm_interrupts,
)
from agentsgym.runs.evaluate import (
    MOST_TASKS,
    PROBE,
    check_signal,
    evaluate_trainer,
    held_out_requests,
    other_references,
    probe,
    signal_text,
    simple_players,
)
from agentsgym.runs.files import (
    MetricsFile,
    RolloutWriter,
    RunDirectory,
    Summary,
    TokenRecordWriter,
)
from agentsgym.runs.files.directory import claim
from agentsgym.runs.from_config import (
    NO_LIMIT,
    checked_tasks,
    make_env,
    template_remark,
    train_settings,
)
from agentsgym.runs.models import Policy, load_policy
from agentsgym.runs.parts import PARTS, Progress, part
from agentsgym.runs.processes import Launch, check_processes, processes_here
from agentsgym.runs.resuming import (
    Start,
    begun,
    load_trained,
    name_reference,
    note_end,
    save_model,
)
from agentsgym.runs.settings import TINY, RunConfig
from agentsgym.runs.trust import check_links, resume_command, trusted
from agentsgym.training.ranks import Ranks, naming_lost_ranks
from agentsgym.types import Rollout
from agentsgym.types.text import named_error, plain

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer


def train_run(
    config: RunConfig,
    *,
    resume: bool = False,
    restart: bool = False,
    set_aside: bool = False,
    progress: Progress | None = None,
    examine: Examine | None = None,
) -> Summary:
    """Execute a run and return its summary; `status` says whether it finished.

    With `resume`, continue from the last checkpoint in the run's directory: optimizer steps equal
    those of an uninterrupted run. Where there is none, `restart` says whether to start again.
    Ctrl-C during training stops at the next generation boundary with a checkpoint; before and after
    training it ends the run at once, as SIGTERM does. An earlier run in the directory is renamed if
    `set_aside` says so; otherwise it is an error. `examine` (agentsgym.report.doctor.examine) is
    asked after half of the training and at the end what goes wrong: the progress and the summary
    have it.

    Under a launcher of several processes (`accelerate launch`) each of them must call it, with
    equal arguments. If one fails, all do; the error of the first is in the summary.

    Raises ConfigError or UnknownEnvironment before any file is written, also if a launcher started
    processes that do not train together; RunInUse (a ConfigError) if another run writes to the
    directory. A later error is written to the summary (`status` "failed", `error`) and raised.
    """
    progress = progress or Progress()
    config = resolved(config, progress)
    directory = config.directory
    with sigterm_interrupts(), naming_lost_ranks():
        run = TrainingRun(config, progress, resumes=resume, examine=examine)

        def claimed() -> BaseFileLock | None:
            if run.ranks.rank:
                return None
            if resume and trusted(config) is not True:
                check_links(directory)
            return claim(directory, resume=resume, set_aside=set_aside, note=run.progress.note)

        lock = run.ranks.together(claimed)
        try:
            return run.carry_out(restarts=restart)
        finally:
            if lock is not None:
                lock.release()


class TrainingRun:
    """The state of one run during its execution. The constructor checks the settings and touches no
    file."""

    def __init__(
        self, config: RunConfig, progress: Progress, *, resumes: bool, examine: Examine | None
    ) -> None:
        from accelerate import PartialState

        from agentsgym.training.tasks import check_number

        self._config = config
        self._resumes = resumes
        self._examine = examine
        self._directory = RunDirectory(config.directory)
        self._settings: GRPOEnvConfig = train_settings(config)
        self.ranks = Ranks(PartialState())
        self.progress = progress = progress if self.ranks.rank == 0 else Progress()
        number = self.ranks.world_size
        check_processes(config, Launch(number, number // processes_here()), self._settings)
        self._env = make_env(config)
        self._train_data = checked_tasks(config, self._env, "train")
        check_number(len(self._train_data), self._settings)
        eval_data = checked_tasks(config, self._env, "eval")
        most = self._settings.max_rollout_tokens
        self._held_out = held_out_requests(config, eval_data, most)
        self._held_out_text = f"{config.eval.rollouts} rollouts on held-out tasks"
        self._warm_start: Any = None
        if config.warm_starts:
            self._warm_start = part("warm_start").WarmStart(
                config, self._env, self._train_data, eval_data, progress, resumes=resumes
            )
        elif config.model.path == TINY:
            config.warm_start_settings()  # raises ConfigError for a wrong one
        self._metrics = MetricsFile(self._directory.metrics)
        self._writer = RolloutWriter(self._directory.root, config.keep_rollouts)

    def carry_out(self, *, restarts: bool) -> Summary:
        """Go through all phases and write the summary."""
        import torch
        from transformers import set_seed

        if self._config.threads is not None:
            torch.set_num_threads(max(1, self._config.threads // processes_here()))
        set_seed(self._config.seed)
        begin = partial(
            begun, self._config, self._settings, self.progress.note, self._resumes, restarts
        )
        self._start: Start = self.ranks.first(begin)
        self._summary: Summary = self._start.summary
        if self.ranks.rank == 0:
            self._writer.agent_tokens = self._start.agent_tokens
        try:
            with naming_lost_ranks():
                self._phases()
        except BaseException as error:
            ended = note_end(error, self._summary, self._config, self.ranks)
            if ended is error:
                raise
            raise ended from error
        finally:
            gc.unfreeze()
        self._write_summary()
        return self._summary

    def _write_summary(self) -> None:
        if self.ranks.rank == 0:
            self._summary.write(self._directory.summary)

    def _phases(self) -> None:
        with self._phase("model", self._config.model.path):
            trainer = self._trainer(self._policy())
        # Objects loaded so far stay alive. Freezing them keeps the garbage collector from searching
        # them again and again, which would cost a twentieth of a tiny model's run.
        gc.freeze()
        with closing(trainer.collector):
            self._play_and_train(trainer)

    def _play_and_train(self, trainer: "GRPOEnvTrainer") -> None:
        trained = self._start.trained
        new = self._start.checkpoint is None and not trained
        if self._summary.before is None and new and not self._is_warm:
            # The package's own models can learn; of others a few games come first, so that no
            # evaluation is paid for one that cannot.
            needs_check = self._config.signal_check and not self._config.model.is_ours
            if needs_check and self._warm_start is None:
                self._check_first_games(trainer)
            with self._phase("before", self._held_out_text):
                self._summary.before = self._evaluate(trainer, "before")
        if self._warm_start is not None and new:
            self._start_warm(trainer, self._warm_start)
        if not trained:
            with self._phase("rl", f"{len(self._train_data)} tasks of {self._config.env}"):
                self._train(trainer)
        if self._summary.stop_reason == "interrupted":
            self._close("interrupted")
            return
        with self._phase("after", self._held_out_text):
            self._summary.after = self._evaluate(trainer, "after")
        self._close("finished")

    def _start_warm(self, trainer: "GRPOEnvTrainer", warm_start: Any) -> None:
        with self._phase("warm_start", str(warm_start)):
            figures = warm_start.carry_out(trainer, self._writer)
            self._summary.model_figures["warm_start"] = figures
        if self._config.signal_check:
            check_signal(figures.get("after", {}), "after the warm start")
        if self._summary.warm_started is None and figures.get("training", True):
            with self._phase("warm_started", self._held_out_text):
                self._summary.warm_started = self._evaluate(trainer, warm_start.evaluated)

    def _check_first_games(self, trainer: "GRPOEnvTrainer") -> None:
        groups = self._settings.generation_batch_size // self._settings.num_generations
        tasks = min(MOST_TASKS, groups)
        with self._phase("probe", f"a group of games on each of {tasks} training tasks"):
            figures, rollouts = probe(trainer, self._train_data, tasks, self._config.seed)
            self._store(rollouts, PROBE, 0)
        self.progress.note(f"first games: {signal_text(figures)}")
        check_signal(figures, "before the first evaluation")

    @property
    def _is_warm(self) -> bool:
        return self._warm_start is not None and self._warm_start.finished

    # -- the phases -----------------------------------------------------------------------------

    def _policy(self) -> Policy:
        if self._start.trained:
            return load_trained(self._config, self._directory.model)
        if self._start.checkpoint is not None:
            self.progress.note(f"continuing from step {self._start.step}")
            return load_trained(self._config, self._start.checkpoint)
        if self._warm_start is not None and self._is_warm:
            return load_trained(self._config, self._warm_start.model)
        policy = load_policy(self._config, self.progress)
        if remark := template_remark(self._config.model, policy.tokenizer):
            self.progress.note(remark)
        self._summary.model_figures = dict(policy.figures)
        return policy

    def _trainer(self, policy: Policy) -> "GRPOEnvTrainer":
        from transformers import PrinterCallback

        from agentsgym.training import GRPOEnvTrainer

        if self._settings.beta:
            section = self._config.model
            if self._warm_start is not None and self._is_warm:
                section = section.at(str(self._warm_start.model))
            name = partial(name_reference, policy.model, section, self._directory.reference)
            self.ranks.first(name)
            name()  # on the other ranks; the folder is there
        trainer = GRPOEnvTrainer(
            model=policy.model,
            args=self._settings,
            train_dataset=self._train_data,
            eval_dataset=None if self._settings.eval_strategy == "no" else self._held_out,
            processing_class=policy.tokenizer,
            rollout_sink=self._writer,
            token_sink=TokenRecordWriter(self._directory.root),
            note=self.progress.note,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _evaluate(self, trainer: "GRPOEnvTrainer", phase: str) -> Evaluation:
        played = evaluate_trainer(
            trainer, self._held_out, self._summary.steps, seed=self._config.eval.seed
        )
        self._store(played.rollouts, phase, self._summary.steps)
        if played.evaluation.failures == played.evaluation.rollouts:
            errors = self.ranks.gather([rollout.error for rollout in played.rollouts])
            last = str(errors[0]).strip().splitlines()[-1]
            raise RuntimeError(f"every rollout of the evaluation failed; the first: {last}")
        if not self._summary.references:
            references = partial(other_references, self._env, self._held_out)
            self._summary.references = self.ranks.first(references)
        if not self._summary.players:
            players = partial(simple_players, self._env, self._held_out, played.rollouts)
            self._summary.players = self.ranks.first(partial(players, self._config.seed))
        if played.evaluation.failures:
            self.progress.note(f"{played.evaluation.failures} rollouts failed, see rollouts/")
        return played.evaluation

    def _store(self, rollouts: Sequence[Rollout], phase: str, step: int) -> None:
        """Store this rank's rollouts of an evaluation or a probe."""
        info = {"phase": phase, "step": step, "rank": self.ranks.rank, "advantages": None}
        self.ranks.together(lambda: self._writer(rollouts, info))

    def _train(self, trainer: "GRPOEnvTrainer") -> None:
        config, args, note = self._config, trainer.args, self.progress.note
        checkpoint = self._start.checkpoint
        began = time.monotonic() - self._summary.phases.get("rl", 0.0)

        def seconds() -> float:
            return time.monotonic() - began

        stop = RunCallback(
            self.ranks,
            args.updates_per_generation,
            seconds,
            max_seconds=config.max_seconds,
            checkpoint_seconds=None if args.save_strategy == "no" else config.checkpoint_seconds,
            find=self._findings,
            note=note,
        )
        log = self._metrics, self._writer, self.progress
        trainer.add_first_callback(MetricsCallback(self.ranks, *log, seconds, stop.share_used))
        trainer.add_callback(stop)
        best = BestWeights(trainer, self._directory.best) if config.keep_best else None
        if best is not None:
            trainer.add_callback(best)
        with ctrl_c_stops(stop, note):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        stop_reason = stop.reason or "max_steps"
        if trainer.low_signal.reason is not None:
            stop_reason = f"no signal: {trainer.low_signal.reason}"
        elif trainer.state.global_step >= trainer.state.max_steps:
            stop_reason = "max_steps"
        if best is not None and stop_reason != "interrupted":
            figures = best.choose(self._train_data, config.seed, note)
            self._summary.model_figures["keep_best"] = figures
        self._summary.steps = trainer.state.global_step
        self._summary.agent_tokens = sum(self.ranks.gather([self._writer.agent_tokens]))
        self._summary.stop_reason = stop_reason
        if stop_reason == "max_seconds" and (most := trainer.state.max_steps) < NO_LIMIT:
            self.progress.note(
                f"max_seconds={self._config.max_seconds:g} is used up after step "
                f"{self._summary.steps} of {most}; {resume_command(self._config)} max_seconds=N "
                "goes on"
            )
        save_model(trainer, self._directory.model)

    def _findings(self) -> Sequence[Finding]:
        """What goes wrong, as far as it is on disk. No fault of the search for faults ends a
        run."""
        try:
            return self._examine(self._directory.root) if self._examine else ()
        except Exception as error:
            self.progress.note(f"the run could not be examined: {named_error(error)}")
            return ()

    def _close(self, status: Literal["interrupted", "finished"]) -> None:
        self._summary.status = status
        self._write_summary()
        self._summary.findings = plain(list(self.ranks.first(self._findings)))
        files = self._directory
        with self._phase("report", str(files.picture)):
            if "curve" in PARTS:
                draw = partial(part("curve").draw_curve, files.metrics, self._summary)
                self.ranks.first(partial(draw, files.picture))

    @contextmanager
    def _phase(self, name: str, what: str) -> Iterator[None]:
        """Announce a phase, measure its time, and write the summary at its end; that of a phase
        that fails is written by `note_end`."""
        self.progress.phase(name, what)
        started = time.monotonic()
        try:
            yield
        finally:
            self._summary.add_time(name, time.monotonic() - started)
        self._write_summary()
