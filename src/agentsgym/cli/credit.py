"""`agentsgym credit`: the credit that estimators assign to a run's rollouts."""

import dataclasses
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field
from rich.table import Table

from agentsgym.cli.command import Argument, AsJson, Command, Several, Trust
from agentsgym.cli.console import (
    fail,
    out,
    print_json,
    print_table,
    quiet_libraries,
    reason,
    shown,
    tell,
)
from agentsgym.cli.players import evaluated_run
from agentsgym.cli.tables import plain_data, plain_table
from agentsgym.credit import find_estimator
from agentsgym.envs import ConfigError
from agentsgym.evaluation.effects import Effect
from agentsgym.report.credit import RECORDED, StepCredit, compare_credit, correlations
from agentsgym.report.stored import Source
from agentsgym.runs.branches import Measured, Where, decisions_of, measure
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.trust import import_stored
from agentsgym.types import Rollout
from agentsgym.types.names import is_foreign
from agentsgym.types.text import cut

_ROWS, _LONGEST = 20, 120


class Credit(Command):
    """Show the credit that each estimator would assign in a run.

    It needs no model and plays no episode: credit is computed from the recorded steps. A function
    of your own is an estimator too: -e my_module.my_function.

    With --replay the run's model plays on from the states before and after its actions, which shows
    what each was worth, and how far each estimator's credit agrees. The plays are kept in the run:
    the same command goes on, also with a larger --budget.

    Examples:

        agentsgym credit runs/quickstart

        agentsgym credit runs/quickstart --step 40 --group 3 -e grpo -e step_return --json

        agentsgym credit runs/explore --replay --budget 5000
    """

    run: Argument[Path]
    """A run directory."""
    step: int | None = None
    """Optimizer step whose generation to show [the last]."""
    group: int | None = Field(None, ge=0)
    """Which group of the generation [the first; with --replay all]."""
    estimator: Annotated[Several, typer.Option("--estimator", "-e")]
    """Estimators to show [the run's and the unbiased ones; with --json all]."""
    replay: bool = False
    """Measure what actions were worth, by playing on from them."""
    plays: int = Field(16, ge=2)
    """With --replay: plays from each state, with common noise."""
    budget: int = Field(20_000, ge=1)
    """With --replay: steps of the environment; then no action begins."""
    where: Where = "random"
    """With --replay: at random, or the least likely actions first."""
    as_json: AsJson
    trust: Trust

    def __call__(self) -> None:
        source = Source(self.run, self.trust)
        names = self._estimators(source)
        step, members = _generation(source, self.step)
        groups = sorted({rollout.group for rollout in members})
        if self.group is not None and self.group not in groups:
            raise ConfigError(f"the generation at step {step} has groups 0 to {max(groups)}")
        if self.group is not None or not self.replay:
            members = [one for one in members if one.group == (self.group or groups[0])]
        try:
            lines = compare_credit(members, names)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if self.replay:
            self._replay(source.root, step, members, lines)
        elif self.as_json:
            print_json([dataclasses.asdict(line) for line in lines])
        else:
            _print(lines, names, source.estimator)

    def _replay(
        self, root: Path, step: int, rollouts: Sequence[Rollout], lines: Sequence[StepCredit]
    ) -> None:
        """Play branches with the weights that sampled the rollouts, or else with the run's model,
        and print the effects beside the credit in `lines`."""
        quiet_libraries()
        run = evaluated_run(str(root), None, {}, trust=self.trust)
        checkpoint = dict(RunDirectory(root).all_checkpoints()).get(step)
        if checkpoint is not None:
            model = run.model.model_copy(update={"path": str(checkpoint)})
            run = run.model_copy(update={"model": model})
        tell(f"The branches of step {step} are played by {run.model.path}")
        measured = measure(
            run,
            root,
            step,
            decisions_of(rollouts, self.where, run.seed),
            plays=self.plays,
            budget=self.budget,
            note=tell,
        )
        if self.as_json:
            found = {"correlations": correlations(measured.effects, lines)}
            print_json(plain_data(dataclasses.asdict(measured) | found))
        else:
            _print_effects(measured, self.plays, lines)

    def _estimators(self, source: Source) -> tuple[str, ...]:
        """The estimators to show, the run's own first."""
        used = source.estimator
        default = [name for name in RECORDED if self.as_json or name == used or _unbiased(name)]
        names = tuple(self.estimator or sorted(default, key=lambda name: name != used))
        import_stored([*names, used or ""], source.root)
        if not self.estimator and used and is_foreign(used):
            with suppress(ValueError):  # its module may be elsewhere
                find_estimator(used)
                return (used, *names)
        return names


def _unbiased(name: str) -> bool:
    return find_estimator(name).variants[0].error == 0.0


def _generation(source: Source, step: int | None) -> tuple[int, list[Rollout]]:
    """The step of a generation, and its rollouts."""
    run = source.root
    generations = {one.step: one for one in source.sets() if one.phase == "train"}
    if not generations:
        raise ConfigError(f"{run} contains no training rollouts")
    chosen = max(generations) if step is None else step
    if chosen not in generations:
        known = ", ".join(map(str, sorted(generations)[:8]))
        raise ConfigError(f"{run} has no generation at step {chosen}; it has {known}, …")
    contents = generations[chosen].read()
    if contents.problem or not contents.lines:
        raise fail(contents.problem or f"the generation at step {chosen} has no rollouts")
    return chosen, [line.rollout for line in contents.lines]


def _print(lines: list[StepCredit], names: tuple[str, ...], used: str | None) -> None:
    several = any(line.episode for line in lines)
    table = plain_table("step", "action", "reward", *_headings(names), texts=["action"])
    before: int | None = None
    for line in lines:
        if line.rollout != before:
            table.add_row("", f"[bold]rollout {line.rollout}{' (failed)' * line.failed}[/bold]")
        before = line.rollout
        place = f"{line.episode}.{line.step}" if several else str(line.step)
        values = (f"{line.credit[name]:+.3f}" for name in names)
        table.add_row(place, _short(line.action), f"{line.reward:.4g}", *values)
    out.print("Credit per step" + " (episode.step)" * several + ":")
    print_table(table)
    if used is not None:
        out.print(shown(f"The run was trained with {used}."))
    out.print("agentsgym view shows the same token by token, in the browser.")


def _headings(names: Iterable[str]) -> list[str]:
    """Names broken after their underscores, so that the numbers stay side by side."""
    return [name.replace("_", "_\n") for name in names]


def _short(action: str) -> str:
    return shown(cut(" ".join(action.split()), _LONGEST))


# -- what actions were worth -----------------------------------------------------------------------


def _print_effects(measured: Measured, plays: int, lines: Sequence[StepCredit]) -> None:
    """The largest effects beside the credit in `lines`, and how far these agree."""
    effects = sorted(measured.effects, key=lambda one: (not one.matters, -abs(one.effect)))
    print_table(_table_of_effects(effects[:_ROWS], lines))
    mattered = sum(one.matters for one in effects)
    out.print(
        f"{len(effects)} of {measured.decisions} decisions measured, with {plays} plays from the "
        f"state before and after each; the intervals of {mattered} have no zero."
    )
    table = plain_table("estimator", "correlation with the effect", "95 % interval")
    found = correlations(measured.effects, lines)
    for name, one in sorted(found.items(), key=lambda item: -item[1].value):
        table.add_row(name, f"{one.value:+.2f}", _between(one.low, one.high))
    print_table(table)
    left = "" if len(effects) == measured.decisions else "; a larger --budget goes on from here"
    out.print(f"{measured.branches} branches took {measured.steps} steps of the environment{left}.")
    if measured.failed:
        first = reason(measured.failed[0])
        out.print(shown(f"{len(measured.failed)} branches failed; the first: {first}"))


def _table_of_effects(effects: Sequence[Effect], lines: Sequence[StepCredit]) -> Table:
    """Each effect with the credit of its action by estimator, and below the action the most
    frequent other ones with their plays and mean reward."""
    names = tuple(lines[0].credit) if lines else ()
    heads = ("rollout", "step", "action", "effect", "95 % interval", *_headings(names))
    table = plain_table(*heads, texts=["action"])
    by_key = {(line.group, line.rollout, line.episode, line.step): line.credit for line in lines}
    for one in effects:
        credit = by_key[one.group, one.rollout, one.episode, one.step]
        others = [other for other in one.alternatives if other.action != one.action][:3]
        said = [_short(one.action)]
        said += [f"  else {_short(o.action)} ({o.plays}: {o.reward:.3g})" for o in others]
        table.add_row(
            f"{one.group}/{one.rollout}",
            f"{one.episode}.{one.step}",
            "\n".join(said),
            f"{one.effect:+.3f}",
            "unknown" if one.interval is None else _between(*one.interval),
            *(f"{credit[name]:+.3f}" for name in names),
        )
    return table


def _between(low: float, high: float) -> str:
    return f"{low:+.3f} to {high:+.3f}" if low <= high else "unknown"
