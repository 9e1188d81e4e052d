"""What `agentsgym train … --estimate` prints: memory and tokens of a run that is not started."""

from typing import TYPE_CHECKING

from rich.table import Table

from agentsgym.cli.console import out, shown

if TYPE_CHECKING:
    from agentsgym.runs.estimate import Estimate
    from agentsgym.runs.settings import RunConfig

_PARTS = {
    "weights": "weights",
    "copies": "copies of the weights (sampling, reference)",
    "optimizer": "optimizer state",
    "gradients": "gradients",
    "activations": "activations",
    "cache": "cache of the engine",
    "peak": "peak",
}


def print_estimate(config: "RunConfig", processes: int) -> None:
    """Estimate a run and print the result."""
    from agentsgym.runs.estimate import estimate

    found = estimate(config, processes)
    tokens, adapter = found.tokens, found.adapter
    trained = f"; an adapter of {_count(adapter)} is trained" if adapter else ", all are trained"
    out.print(
        f"[bold]{shown(config.model.path)}[/]: {_count(found.parameters)} parameters{trained}\n"
    )
    out.print(_table(found, processes))
    where = "a process" if processes > 1 else "the optimizer"
    out.print(
        f"\nA step of {where}: {tokens.rollouts} rollouts of at most {tokens.turns} turns and "
        f"{tokens.rollout} tokens; it samples at most {tokens.agent:,} tokens, and the loss reads "
        f"at most {tokens.read:,}."
    )
    for note in found.notes:
        out.print(note)


def _table(found: "Estimate", processes: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("memory")
    for layout in found.memory:
        title = layout if processes == 1 else f"each of {processes}, {layout}"
        table.add_column(title, justify="right")
    for part, title in _PARTS.items():
        values = [memory[part] for memory in found.memory.values()]
        if any(values):
            style = "bold" if part == "peak" else None
            table.add_row(title, *map(size, values), style=style)
    return table


def size(value: int) -> str:
    """Bytes in a unit that one reads."""
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.2f} M"
