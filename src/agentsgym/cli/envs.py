"""`agentsgym envs`."""

from importlib.util import find_spec

from rich.table import Table

from agentsgym.cli.console import line, out, print_table, shown
from agentsgym.envs.builtin import KNOWN
from agentsgym.types.names import install_command


def envs() -> None:
    """List the registered environments, their descriptions, and whether they are installed."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("environment", no_wrap=True)
    table.add_column("installed", no_wrap=True)
    table.add_column("description", overflow="fold")
    missing: dict[str, list[str]] = {}
    for name, env in sorted(KNOWN.items()):
        installed = env.extra is None or env.module is None or find_spec(env.module) is not None
        if env.extra is not None and not installed:
            missing.setdefault(install_command(env.extra), []).append(name)
        table.add_row(name, "yes" if installed else "no", shown(env.help))
    print_table(table)
    for command, names in missing.items():
        out.print(f"\nTo install {', '.join(names)}:")
        line(command)
    out.print(
        "\nPlay one with [bold]agentsgym play NAME[/]; "
        "[bold]agentsgym play NAME --help-config[/] lists its settings."
    )
