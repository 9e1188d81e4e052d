"""What `agentsgym train … --dry-run` prints: what ran in small, and what was not tried."""

from typing import TYPE_CHECKING

from rich.table import Table

from agentsgym.cli.console import out, quiet_libraries, shown

if TYPE_CHECKING:
    from agentsgym.runs.launch import Launch
    from agentsgym.runs.settings import RunConfig


def print_dry_run(config: "RunConfig", launch: "Launch") -> None:
    """Run in small and print the result; `launch` says in which processes the run will be."""
    from agentsgym.cli.progress import Bars

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
