"""`agentsgym train`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from agentsgym.cli.console import (
    BAD_USAGE,
    INTERRUPTED,
    fail,
    import_from_here,
    out,
    quiet_libraries,
    usage_errors,
)

if TYPE_CHECKING:
    from agentsgym.report import Summary
    from agentsgym.runs import RunConfig


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET|FILE.yaml] [key=value]...",
            help="What to run, and dotted settings that differ from it.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with an interrupted run: --resume RUN_DIR, or PRESET --resume."
        ),
    ] = False,
    from_scratch: Annotated[
        bool,
        typer.Option("--from-scratch", help="Build and warm-start the model from nothing."),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run directory; runs/NAME by default.")
    ] = None,
) -> None:
    """Train an agent with GRPO and evaluate it before and after.

    The run directory gets the configuration, metrics.jsonl, every rollout, checkpoints, the
    model, summary.json and learning-curve.png. Ctrl-C stops at the next step with a checkpoint.

    Examples:

        agentsgym train quickstart

        agentsgym train quickstart seed=1 train.learning_rate=1e-4 env_config.hints=3

        agentsgym train my-run.yaml --output runs/second

        agentsgym train --resume runs/quickstart

    `agentsgym presets` lists the presets; `agentsgym presets quickstart` prints one, to start a
    FILE.yaml of your own from.
    """
    import_from_here()
    with usage_errors():
        config = _config(arguments or [], resume, from_scratch, output)
    summary = _run(config, resume)
    _show(summary, config)
    if summary.status == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _config(
    arguments: list[str], resume: bool, from_scratch: bool, output: Path | None
) -> "RunConfig":
    from agentsgym.runs import load_config, load_run, parse_overrides, presets

    sources = [argument for argument in arguments[:1] if "=" not in argument]
    overrides: dict[str, Any] = parse_overrides(arguments[len(sources) :])
    if from_scratch:
        overrides["model"] = "tiny"
    if output is not None:
        overrides["output_dir"] = str(output)
    if not resume:
        if not sources:
            known = ", ".join(presets())
            raise fail(f"name a preset ({known}) or a YAML file", BAD_USAGE)
        return load_config(sources[0], overrides)
    return load_run(_run_dir(sources, output), overrides)


def _run_dir(sources: list[str], output: Path | None) -> Path:
    """Where the run to resume lies: --output, a run directory, or that of a preset or file."""
    from agentsgym.runs import load_config, presets

    if output is not None:
        return output
    if not sources:
        raise fail("say which run to resume: --resume RUN_DIR", BAD_USAGE)
    source, path = sources[0], Path(sources[0])
    if not path.is_dir() and (path.is_file() or source in presets()):
        return load_config(source).directory
    return path


def _run(config: "RunConfig", resume: bool) -> "Summary":
    from agentsgym.cli.bars import Bars

    quiet_libraries()
    with usage_errors():
        from agentsgym.runs import train_run

        try:
            with Bars() as bars:
                return train_run(config, resume=resume, set_aside=True, progress=bars)
        except KeyboardInterrupt:
            hint = f"agentsgym train --resume {config.directory} goes on from its last checkpoint"
            raise fail(f"aborted; {hint}", INTERRUPTED) from None


def _show(summary: "Summary", config: "RunConfig") -> None:
    from agentsgym.cli.tables import duration, summary_table

    out.print()
    if summary.before or summary.after:
        out.print(summary_table(summary))
    times = ", ".join(f"{name} {duration(value)}" for name, value in summary.phases.items())
    out.print(f"{duration(summary.seconds)} in all: {times}.")
    if summary.status == "interrupted":
        out.print(
            f"Interrupted after step {summary.steps}. Go on with "
            f"[bold]agentsgym train --resume {escape(str(config.directory))}[/]"
        )
        return
    out.print(f"Training ended after {summary.steps} steps: {escape(str(summary.stop_reason))}.")
    out.print(
        f"Everything is in [bold]{escape(str(config.directory))}[/]: summary.json, "
        "learning-curve.png, metrics.jsonl, rollouts/, checkpoints/, model/."
    )
