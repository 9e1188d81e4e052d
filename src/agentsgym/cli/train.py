"""`agentsgym train`."""

import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from pydantic import Field, model_validator

from agentsgym.cli.command import Command, Several, Trust, given_settings, setting
from agentsgym.cli.console import (
    INTERRUPTED,
    err,
    fail,
    out,
    print_table,
    quiet_libraries,
    shown,
)
from agentsgym.cli.progress import bars
from agentsgym.cli.tables import duration, plain_table, summary_table
from agentsgym.envs import ConfigError
from agentsgym.runs import RunConfig, load_config, load_run, presets
from agentsgym.runs.files import RunDirectory, Summary
from agentsgym.runs.parts import part
from agentsgym.runs.processes import (
    Ended,
    Launch,
    is_other_rank,
    processes_started,
    run_processes,
)
from agentsgym.runs.trust import (
    check_stored,
    foreign_code,
    import_stored,
    resume_command,
    with_trust,
)
from agentsgym.types.names import import_from_here
from agentsgym.types.text import docs_page


class Train(Command):
    """Train an agent with GRPO and evaluate it before and after.

    The run directory gets the configuration, metrics.jsonl, every rollout, checkpoints, the
    model, summary.json and learning-curve.png. Ctrl-C stops at the next step with a checkpoint.

    Examples:

        agentsgym train quickstart

        agentsgym train quickstart seed=1 train.learning_rate=1e-4 env_config.hints=3

        agentsgym train my-run.yaml --output runs/second

        agentsgym train --resume runs/quickstart

        agentsgym train one-gpu --estimate

        agentsgym train eight-gpus --processes 6 --dry-run

        agentsgym train eight-gpus --processes 6

    On several machines `accelerate launch … -m agentsgym train RUN` starts the processes.

    `agentsgym presets` lists the presets; `agentsgym presets quickstart` prints one, which you can
    use to start your own FILE.yaml.
    """

    arguments: Annotated[Several, typer.Argument(metavar="[PRESET|FILE.yaml] [KEY=VALUE]...")]
    """The run, and dotted settings to change in it."""
    resume: bool = False
    """Continue an interrupted run: --resume RUN_DIR, or PRESET --resume."""
    restart: bool = False
    """With --resume: start again if there is no checkpoint, or no run yet."""
    from_scratch: bool = False
    """Build and warm-start a new model first."""
    output: Annotated[Path | None, typer.Option("--output", "-o")] = setting("output_dir")
    estimate: bool = False
    """Print memory and tokens of a step; train nothing."""
    dry_run: bool = False
    """Play and train one step in small on the CPU; keep nothing."""
    processes: int | None = Field(None, ge=1)
    """Train in several processes of this machine, a GPU each."""
    machines: int = Field(1, ge=1)
    """With --dry-run: the machines on which accelerate will start --processes in all."""
    trust: Trust

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.restart and not self.resume:
            raise ConfigError("--restart belongs to --resume")
        if self.machines > 1 and not self.dry_run:
            raise ConfigError("--machines belongs to --dry-run; accelerate launch starts several")
        return self

    def __call__(self) -> None:
        config = self._config()
        launch = Launch(self.processes or processes_started(), self.machines)
        if self.estimate:
            _print_estimate(config, launch)
            return
        if launch.processes > 1 and processes_started() == 1:
            if self.dry_run:
                part("rehearsal").check_launch(config, launch)
            # Two processes stand for those of the real run.
            count = 2 if self.dry_run else launch.processes
            raise _ended(run_processes(count, sys.argv[1:]))
        quiet_libraries()
        out.quiet = is_other_rank()
        if self.dry_run:
            _print_dry_run(config, launch)
        else:
            self._train(config, launch)

    def _train(self, config: RunConfig, launch: Launch) -> None:
        """Train in this process, which may be one of several."""
        if launch.processes != processes_started():
            raise ConfigError(
                f"--processes {launch.processes}: a launcher has started {processes_started()}; "
                "leave the option out there"
            )
        from agentsgym.report.doctor import examine
        from agentsgym.runs import train_run

        with bars() as progress:
            summary = train_run(
                config,
                resume=self.resume,
                restart=self.restart,
                set_aside=True,
                progress=progress,
                examine=examine,
            )
        _show(summary, config)
        if summary.status == "interrupted":
            raise typer.Exit(INTERRUPTED)

    def _config(self) -> RunConfig:
        source = next((one for one in self.arguments[:1] if "=" not in one), None)
        overrides = given_settings(self.arguments[0 if source is None else 1 :])
        overrides |= {"model": "tiny"} if self.from_scratch else {}
        overrides |= self.options()
        if self.resume:
            config = self._run_to_resume(source, overrides)
        elif source is None:
            raise ConfigError(f"name a preset ({', '.join(presets())}) or a YAML file")
        else:
            config = load_config(source, overrides)
            import_from_here(*foreign_code(config))
        return with_trust(config) if self.trust else config

    def _run_to_resume(self, source: str | None, overrides: dict[str, Any]) -> RunConfig:
        """The configuration stored in a run directory: --output, the source, or that of the preset
        or file, which is the user's own. Raises ConfigError if it names something outside of the
        directory that the user does not name, without --trust."""
        if source is None and self.output is None:
            raise ConfigError("say which run to resume: --resume RUN_DIR")
        file, path = None, Path(str(source))
        if path.is_file() or (source in presets() and not path.is_dir()):
            file = load_config(str(source), overrides)
        directory = self.output or (file.directory if file else path)
        if file is not None:
            import_stored(foreign_code(file), directory)
            if self.restart and not RunDirectory(directory).is_run():
                return file
        config = load_run(directory, overrides)
        import_stored(foreign_code(config), directory)
        if not self.trust:
            check_stored(config, overrides, training=True, file=file)
        return config


def _ended(end: Ended) -> typer.Exit:
    """Print the error that ended the run's processes, unless rank 0 has; return the exception to
    raise."""
    if end.status < 0:
        return fail(f"process {end.rank} was killed by {signal.Signals(-end.status).name}")
    if end.output:
        err.print(f"process {end.rank}: {end.output.strip()}", markup=False, soft_wrap=True)
    return typer.Exit(end.status)


def _show(summary: Summary, config: RunConfig) -> None:
    out.print()
    if summary.before or summary.after:
        print_table(summary_table(summary))
    times = ", ".join(f"{name} {duration(value)}" for name, value in summary.phases.items())
    out.print(f"{duration(summary.seconds)} in total: {times}.")
    if summary.status == "interrupted":
        out.print(
            f"Interrupted after step {summary.steps}. Continue with "
            f"[bold]{shown(resume_command(config))}[/]"
        )
        return
    most = config.train.max_steps
    steps = f"{summary.steps} of {most}" if most else str(summary.steps)
    out.print(f"Training ended after {steps} steps: {shown(str(summary.stop_reason))}.")
    _show_findings(summary, config)
    out.print(
        f"Everything is in [bold]{shown(str(config.directory))}[/]: summary.json, "
        "learning-curve.png, metrics.jsonl, rollouts/, checkpoints/, model/."
    )


def _show_findings(summary: Summary, config: RunConfig) -> None:
    """The first fault, which may cause the others, with its next step, and the names of these."""
    if not summary.findings:
        return
    first, *others = summary.findings
    also = f" Also: {', '.join(one['fault'] for one in others)}." if others else ""
    out.print(f"[bold]{shown(first['title'])}[/] ({first['fault']}){also}", soft_wrap=True)
    out.print(f"  next: {shown(first['next'])}", soft_wrap=True)
    out.print(
        f"[bold]agentsgym doctor {shown(str(config.directory))}[/] shows the numbers, and "
        f"{docs_page('My game does not learn')} what to do."
    )


def _print_estimate(config: RunConfig, launch: Launch) -> None:
    estimate = part("rehearsal").estimate_run(config, launch.processes)
    out.print(
        f"[bold]{shown(config.model.path)}[/]: {_count(estimate.parameters)} parameters, "
        f"{_count(estimate.trained)} are trained\n"
    )
    table = plain_table("memory of a process" if launch.processes > 1 else "memory", "")
    table.columns[1].justify = "right"
    for what, value in estimate.memory.items():
        if value:
            table.add_row(what, _size(value), style="bold" if what == "peak" else None)
    print_table(table)
    guess = " (guessed: train.max_rollout_tokens bounds them)" if estimate.guessed else ""
    out.print(
        f"\nA step: {estimate.rollouts} rollouts of at most {estimate.tokens} "
        f"tokens{guess}. Servers and libraries are not counted."
    )


def _size(value: int) -> str:
    """Bytes in GB or MB."""
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.2f} M"


def _print_dry_run(config: RunConfig, launch: Launch) -> None:
    """Train one step in small, and print what was tried; `launch` has the run's processes."""

    with bars() as progress:
        remarks = part("rehearsal").dry_run(config, progress, launch)
    for remark in remarks:
        out.print(shown(remark))
    with suppress(ConfigError):  # it is among the remarks
        _print_estimate(config, launch)
