"""`agentsgym doctor`: what goes wrong in a run."""

from dataclasses import asdict
from pathlib import Path

import typer

from agentsgym.cli.command import Argument, AsJson, Command, Trust
from agentsgym.cli.console import FAILURE, line, out, print_json, shown
from agentsgym.envs import ConfigError
from agentsgym.report.doctor import FAULTS, Evidence, Fault, diagnose, read_evidence
from agentsgym.report.stored import Source
from agentsgym.types.text import docs_page


class Doctor(Command):
    """Name what goes wrong in a run, with the numbers that show it and what to try.

    It reads the metrics, the evaluations, and the rollouts and token records of some generations.
    Nothing is loaded or played.

    Exit status 0: no fault was found; 1: there is at least one; 2: this is no run.

    Examples:

        agentsgym doctor runs/quickstart

        agentsgym doctor runs/quickstart --json
    """

    run: Argument[Path]
    """A run directory, also of a run that goes on."""
    as_json: AsJson
    trust: Trust

    def __call__(self) -> None:
        evidence = read_evidence(Source(self.run, self.trust))
        if not (evidence.trained or evidence.played or evidence.evaluations):
            raise ConfigError(f"{self.run} has no training steps and no rollouts yet")
        findings = diagnose(evidence)
        if self.as_json:
            print_json(_data(self.run, evidence, findings))
        else:
            _tell(self.run, evidence, findings)
        if findings:
            raise typer.Exit(FAILURE)


def _data(run: Path, evidence: Evidence, findings: list[Fault]) -> dict[str, object]:
    return {
        "run": str(run),
        "training_steps": len(evidence.trained),
        "sets_read": [one.of.id for one in evidence.played],
        "problems": list(evidence.problems),
        "findings": [asdict(one) for one in findings],
    }


def _tell(run: Path, evidence: Evidence, findings: list[Fault]) -> None:
    for problem in evidence.problems:
        line(f"not read: {problem}")
    for one in findings:
        out.print(f"[bold]{shown(one.title)}[/bold] ({one.fault})", soft_wrap=True)
        for text in one.evidence:
            line(f"  {text}")
        line(f"  next: {one.next}")
        if one.rollouts:
            line(f"  look at: {', '.join(one.rollouts)}")
        out.print()
    read = f"{len(evidence.trained)} training steps, rollouts of {len(evidence.played)} sets"
    count = len(findings)
    faults = "no fault" if not count else "1 fault" if count == 1 else f"{count} faults"
    line(f"{run}: {faults} of the {len(FAULTS)} that are looked for ({read})")
    if findings:
        line(f"what to do: {docs_page('My game does not learn')}")
    names = [name for one in findings for name in one.rollouts]
    if names:
        steps = [int(name.partition("/")[0].partition("-")[2]) for name in names]
        line(f"agentsgym view {run} --steps {min(steps)}-{max(steps)} --rollouts 0")
