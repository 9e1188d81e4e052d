"""What `agentsgym train` prints with `--estimate` and `--dry-run`."""

from rich.table import Table

from agentsgym.cli.console import out, quiet_libraries, shown
from agentsgym.cli.progress import Bars
from agentsgym.runs.estimate import Estimate, estimate
from agentsgym.runs.launch import Launch
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


def print_estimate(config: RunConfig, processes: int) -> None:
    """Estimate a run and print the result."""
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


def _table(found: Estimate, processes: int) -> Table:
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


def print_dry_run(config: RunConfig, launch: Launch) -> None:
    """Run in small and print the result; `launch` says in which processes the run will be."""
    quiet_libraries()
    from agentsgym.runs.dry_run import dry_run

    with Bars() as bars:
        done = dry_run(config, bars, launch)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("in the run")
    table.add_column("here instead")
    for part, exchange in done.exchanged.items():
        table.add_row(f"{part}: {shown(exchange.configured)}", shown(exchange.instead))
    out.print(table)
    out.print(
        f"\nThe settings are valid. {done.summary.steps} optimizer step ran, on "
        f"{done.summary.agent_tokens} sampled tokens; nothing was kept."
    )
    for text in done.not_tried:
        out.print(f"Not tried here: {shown(text)}.")
