"""`agentsgym train`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from agentsgym.cli.console import (
    BAD_USAGE,
    INTERRUPTED,
    fail,
    out,
    quiet_libraries,
    shown,
)
from agentsgym.cli.estimate import print_dry_run, print_estimate
from agentsgym.cli.options import ConfigOption, TrustOption
from agentsgym.cli.progress import Bars
from agentsgym.cli.tables import duration, summary_table
from agentsgym.runs import RunConfig, load_config, load_run, parse_overrides, presets
from agentsgym.runs.files import Summary
from agentsgym.runs.launch import Launch, read_launch
from agentsgym.runs.trust import check_untrusted, is_own, named_code, resume_command, with_trust
from agentsgym.types.trust import import_from_here


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET|FILE.yaml] [KEY=VALUE]...",
            help="The run, and dotted settings to change in it.",
        ),
    ] = None,
    settings: ConfigOption = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue an interrupted run: --resume RUN_DIR, or PRESET --resume."
        ),
    ] = False,
    from_scratch: Annotated[
        bool,
        typer.Option("--from-scratch", help="Build and warm-start a new model first."),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run directory; default runs/NAME.")
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Print memory and tokens of a step; train nothing."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Play and train one step in small on the CPU; keep nothing."
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            "--processes", help="With --estimate or --dry-run: processes with a GPU each.", min=1
        ),
    ] = 1,
    accelerate: Annotated[
        Path | None,
        typer.Option(
            "--accelerate",
            metavar="FILE.yaml",
            help="The same from the configuration with which accelerate will launch the run.",
        ),
    ] = None,
    trust: TrustOption = False,
) -> None:
    """Train an agent with GRPO and evaluate it before and after.

    The run directory gets the configuration, metrics.jsonl, every rollout, checkpoints, the
    model, summary.json and learning-curve.png. Ctrl-C stops at the next step with a checkpoint.

    Examples:

        agentsgym train quickstart

        agentsgym train quickstart seed=1 train.learning_rate=1e-4 env_config.hints=3

        agentsgym train my-run.yaml --output runs/second

        agentsgym train --resume runs/quickstart

        agentsgym train one-gpu --estimate

        agentsgym train eight-gpus --dry-run --accelerate examples/configs/eight_gpus.yaml

    `agentsgym presets` lists the presets; `agentsgym presets quickstart` prints one, which you can
    use to start your own FILE.yaml.
    """
    given = [*(arguments or []), *(settings or [])]
    config = _config(given, resume, from_scratch, output, trust)
    if estimate or dry_run:
        launch = _launch(processes, accelerate)
        if dry_run:
            print_dry_run(config, launch)
        print_estimate(config, launch.processes)
        return
    summary = _run(config, resume)
    _show(summary, config)
    if summary.status == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _launch(processes: int, accelerate: Path | None) -> Launch:
    return Launch(processes) if accelerate is None else read_launch(accelerate)


def _config(
    arguments: list[str],
    resume: bool,
    from_scratch: bool,
    output: Path | None,
    trust: bool,
) -> RunConfig:
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
        config = load_config(sources[0], overrides)
        import_from_here(*named_code(config))
        return with_trust(config) if trust else config
    return _run_to_resume(sources, output, overrides, trust)


def _run_to_resume(
    sources: list[str], output: Path | None, overrides: dict[str, Any], trust: bool
) -> RunConfig:
    """The configuration stored in a run directory. Raises ConfigError if the run is somebody
    else's and names what the user does not."""
    own = _own_config(sources)
    directory = _run_dir(sources, output, own)
    stored = load_run(directory, overrides)
    if not (trust or is_own(directory)):
        stored = check_untrusted(stored, overrides, own, training=True)
    import_from_here(*named_code(stored))
    return with_trust(stored) if trust else stored


def _own_config(sources: list[str]) -> RunConfig | None:
    """The preset or file that the user names; None if it is a run directory."""
    for source in sources:
        if not Path(source).is_dir() and (Path(source).is_file() or source in presets()):
            return load_config(source)
    return None


def _run_dir(sources: list[str], output: Path | None, own: RunConfig | None) -> Path:
    """The directory of the run to resume: --output, a run directory, or a preset's or file's."""
    if output is not None:
        return output
    if not sources:
        raise fail("say which run to resume: --resume RUN_DIR", BAD_USAGE)
    return own.directory if own else Path(sources[0])


def _run(config: RunConfig, resume: bool) -> Summary:
    quiet_libraries()
    from agentsgym.runs import train_run

    with Bars() as bars:
        return train_run(config, resume=resume, set_aside=True, progress=bars)


def _show(summary: Summary, config: RunConfig) -> None:
    out.print()
    if summary.before or summary.after:
        out.print(summary_table(summary))
    times = ", ".join(f"{name} {duration(value)}" for name, value in summary.phases.items())
    out.print(f"{duration(summary.seconds)} in total: {times}.")
    if summary.status == "interrupted":
        out.print(
            f"Interrupted after step {summary.steps}. Continue with "
            f"[bold]{shown(resume_command(config))}[/]"
        )
        return
    out.print(f"Training ended after {summary.steps} steps: {shown(str(summary.stop_reason))}.")
    out.print(
        f"Everything is in [bold]{shown(str(config.directory))}[/]: summary.json, "
        "learning-curve.png, metrics.jsonl, rollouts/, checkpoints/, model/."
    )
