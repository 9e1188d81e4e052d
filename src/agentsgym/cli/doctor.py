"""`agentsgym doctor`: what goes wrong in a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from agentsgym.cli.console import BAD_USAGE, FAILURE, fail, out, shown
from agentsgym.cli.options import TrustOption
from agentsgym.report.doctor import RULES, Evidence, Fault, diagnose, read_evidence
from agentsgym.report.viewer.source import Source


def doctor(
    run: Annotated[Path, typer.Argument(help="A run directory, also of a run that goes on.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    trust: TrustOption = False,
) -> None:
    """Name what goes wrong in a run, with the numbers that show it and what to try.

    It reads the metrics, the evaluations, and the rollouts and token records of some generations.
    Nothing is loaded or played.

    Exit status 0: no fault was found; 1: there is at least one; 2: this is no run.

    Examples:

        agentsgym doctor runs/quickstart

        agentsgym doctor runs/quickstart --json
    """
    evidence = read_evidence(Source(run, trust))
    if not evidence.metrics and not evidence.played:
        raise fail(f"{run} has no training steps and no rollouts yet", BAD_USAGE)
    found = diagnose(evidence)
    if as_json:
        typer.echo(json.dumps(_data(run, evidence, found), indent=2, allow_nan=False))
    else:
        _tell(run, evidence, found)
    if found:
        raise typer.Exit(FAILURE)


def _data(run: Path, evidence: Evidence, found: list[Fault]) -> dict[str, object]:
    return {
        "run": str(run),
        "training_steps": len(evidence.metrics),
        "sets_read": [one.name for one in evidence.played],
        "problems": list(evidence.problems),
        "findings": [one.as_dict() for one in found],
    }


def _tell(run: Path, evidence: Evidence, found: list[Fault]) -> None:
    for problem in evidence.problems:
        _line(f"not read: {problem}")
    for one in found:
        out.print(f"[bold]{shown(one.title)}[/bold] ({one.fault})", soft_wrap=True)
        for line in one.evidence:
            _line(f"  {line}")
        for line in one.attempts:
            _line(f"  try: {line}")
        if one.rollouts:
            _line(f"  look at: {', '.join(one.rollouts)}")
        out.print()
    read = f"{len(evidence.metrics)} training steps, rollouts of {len(evidence.played)} sets"
    faults = "no fault" if not found else "1 fault" if len(found) == 1 else f"{len(found)} faults"
    _line(f"{run}: {faults} of the {len(RULES)} that are looked for ({read})")
    first = next((name for one in found for name in one.rollouts), None)
    if first is not None:
        _line(f"agentsgym view {run} --rollout {first}")


def _line(text: str) -> None:
    out.print(shown(text), soft_wrap=True)
