"""Tables of results."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.table import Table

from agentsgym.cli.console import shown
from agentsgym.evaluation import Comparison, Difference, Evaluation, Passes
from agentsgym.evaluation.metrics import INFORMING, PER_STEP
from agentsgym.runs.evaluate import OPTIMAL, RANDOM
from agentsgym.runs.files import Summary
from agentsgym.types.text import plain

Interval = tuple[float | None, float | None] | None
FINDING = "finding"
Line = tuple[str, list[str]]
"""The name of a figure, and its value in each column."""


def evaluation_table(
    agent: str,
    env: str,
    result: Evaluation,
    passes: Sequence[Passes] = (),
    references: Mapping[str, float] | None = None,
) -> Table:
    """One evaluation, one figure per line; `references` are mean scores of other players."""
    columns = {"all": result, **result.environments}
    table = _figures(f"{agent} on {env}", columns, references or {})
    for one in passes:
        table.add_row(f"pass@{one.k}", f"{share(one.any)} ({interval(one.any_ci95, share)})")
        table.add_row(f"pass^{one.k}", f"{share(one.all)} ({interval(one.all_ci95, share)})")
    total = max(1, sum(result.stop_reasons.values()))
    for reason, count in sorted(result.stop_reasons.items()):
        table.add_row(shown(f"ended by {reason}"), share(count / total))
    return table


def summary_table(summary: Summary) -> Table:
    """A run's evaluations side by side: before, after a warm start, after RL."""
    evaluations = {
        "before": summary.before,
        "warm-started": summary.warm_started,
        "after": summary.after,
    }
    columns = {name: figures for name, figures in evaluations.items() if figures}
    title = f"{summary.name}: {summary.env}, held-out tasks"
    simple = {_SIMPLE.get(name, name): reward for name, reward in summary.players.items()}
    table = _figures(title, columns, {**simple, **summary.references})
    table.show_header = True
    return table


_SIMPLE = {RANDOM: "random player", OPTIMAL: "best player"}


def _figures(
    title: str, columns: Mapping[str, Evaluation], references: Mapping[str, float]
) -> Table:
    """A line per figure; the scores of other players stand below the model's and that of the
    reference player."""
    table = Table(title=shown(title), title_justify="left", show_header=len(columns) > 1)
    table.add_column()
    for name in columns:
        table.add_column(shown(name), justify="right", no_wrap=True)
    lines = _lines(list(columns.values()), rewards=bool(references))
    below = [name for name, _ in lines if name in ("regret", "actions")][:1]
    for name, values in lines:
        for other, value in references.items() if name in below else ():
            table.add_row(shown(other), *[number(value)] * len(columns))
        table.add_row(name, *values)
    return table


def _lines(evaluations: list[Evaluation], *, rewards: bool) -> list[Line]:
    """The figures that are not trivial; the rewards also where they are the win rates, if others'
    `rewards` stand below."""
    lines = [
        ("win rate", [share(f.win_rate) for f in evaluations]),
        ("95 % interval", [interval(f.ci95, share) for f in evaluations]),
        ("reward", [number(f.reward) for f in evaluations]),
        ("95 % interval", [interval(f.reward_ci95, number) for f in evaluations]),
        ("reference player", [number(f.reference) for f in evaluations]),
        ("regret", [number(f.regret) for f in evaluations]),
        ("actions", [number(f.mean_steps) for f in evaluations]),
        *_trial_lines(evaluations),
        *_metric_lines(evaluations),
        ("rollouts", [str(f.rollouts) for f in evaluations]),
        ("task clusters", [str(f.clusters) for f in evaluations]),
        ("failed", [str(f.failures) for f in evaluations]),
    ]
    if all(f.win_rate is None for f in evaluations):
        lines = lines[2:]
    elif all(f.win_rate == f.reward for f in evaluations) and not rewards:
        del lines[2:4]
    return [(name, values) for name, values in lines if any(v not in ("–", "0") for v in values)]


def _metric_lines(evaluations: list[Evaluation]) -> list[Line]:
    names = sorted({name for figures in evaluations for name in figures.metrics})
    lines = []
    for name in names:
        values = [figures.metrics.get(name) for figures in evaluations]
        if any(values):
            form = share if name in (*PER_STEP, *INFORMING) else number
            lines.append((shown(f"{name}, per action"), [form(value) for value in values]))
    return lines


def _trial_lines(evaluations: list[Evaluation]) -> list[Line]:
    lines = []
    for name in dict.fromkeys(name for figures in evaluations for name in figures.trial):
        form = share if name.endswith("win_rate") else number
        values = [form(figures.trial.get(name)) for figures in evaluations]
        lines.append((name.replace("/", ", ").replace("_", " "), values))
    return lines


def share(value: float | None) -> str:
    """The value as a percentage."""
    return "–" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """The value with three decimals."""
    return "–" if value is None else f"{value:.3f}"


def interval(bounds: Interval, form: Any) -> str:
    """Both bounds, formatted by `form`."""
    if bounds is None or None in bounds:
        return "–"
    return f"{form(bounds[0])} to {form(bounds[1])}"


def duration(seconds: float) -> str:
    """The time in minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def plain_data(result: Any) -> dict[str, Any]:
    """A record of figures as plain data, for JSON."""
    data: dict[str, Any] = plain(TypeAdapter(Any).dump_python(result))
    return data


def plain_table(*heads: str, texts: Collection[str] = ()) -> Table:
    """A table without lines; the columns `texts` wrap, others keep their cells whole."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head, no_wrap=head not in texts, overflow="fold", vertical="top")
    return table


def wide_table(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    notes: Sequence[str] = (),
) -> Table:
    """Rows, of which the first cell is the name and others are numbers, but for a "finding", below
    `heads`; the notes stand below."""
    table = Table(title=shown(title), title_justify="left", box=SIMPLE_HEAD, padding=0)
    for place, head in enumerate(heads):
        justify: Literal["left", "right"] = "right" if place else "left"
        numbers = place > 0 and head != FINDING
        table.add_column(shown(head), justify=justify, no_wrap=numbers, overflow="fold")
    for row in rows:
        table.add_row(*map(shown, row))
    table.caption, table.caption_justify = shown("\n".join(notes)), "left"
    return table


# -- a comparison ----------------------------------------------------------------------------------


def comparison_table(first: str, second: str, result: Comparison, title: str) -> Table:
    """Both players' figures and their paired differences, first minus second."""
    parts = {"": result} | {f"{path}: ": one for path, one in result.environments.items()}
    rows = []
    for prefix, part in parts.items():
        if part.win_rate is not None:
            rows.append(compared(f"{prefix}win rate", part.win_rate, first, second, "{:.1%}"))
        if part.reward != part.win_rate:
            rows.append(compared(f"{prefix}reward", part.reward, first, second, "{:.3f}"))
    pairs = f"{result.pairs} pairs of rollouts in {result.clusters} clusters of tasks"
    if result.left_out:
        pairs += f", {result.left_out} left out because a side failed"
    notes = (pairs, "First minus second; 95 % intervals in brackets.")
    return wide_table(title, ("", first, second, "difference", FINDING), rows, notes)


def compared(name: str, one: Difference, first: str, second: str, form: str) -> list[str]:
    """The row of a paired difference; `form` formats its numbers."""
    low, high = one.interval
    signed = form.replace(":", ":+")
    bounds = f" [{signed.format(low)}, {signed.format(high)}]" if low == low else ""
    finding = "no difference shown"
    if one.shown:
        finding = f"{first if one.difference > 0 else second} is higher"
    values = (form.format(value) if value == value else "–" for value in (one.first, one.second))
    return [name, *values, signed.format(one.difference) + bounds, finding]
