"""`agentsgym envs`."""

import inspect
from importlib.util import find_spec

from rich.table import Table

from agentsgym.cli.console import line, out, shown
from agentsgym.envs import UnknownEnvironment, find, registered
from agentsgym.envs.builtin import KNOWN
from agentsgym.types.names import install_command


def envs() -> None:
    """List the registered environments, their descriptions, and whether they are installed."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("environment", no_wrap=True)
    table.add_column("installed", no_wrap=True)
    table.add_column("description", overflow="fold")
    missing: dict[str, list[str]] = {}
    for name in registered():
        command = _missing_extra(name)
        if command is not None:
            missing.setdefault(command, []).append(name)
        table.add_row(name, "no" if command else "yes", shown(_description(name)))
    out.print(table)
    for command, names in missing.items():
        out.print(f"\nTo install {', '.join(names)}:")
        line(command)
    out.print(
        "\nPlay one with [bold]agentsgym play NAME[/]; "
        "[bold]agentsgym play NAME --help-config[/] lists its settings."
    )


def _missing_extra(name: str) -> str | None:
    """The command that installs a built-in environment's missing extra; None if none is missing."""
    env = KNOWN.get(name)
    if env is None or env.module is None or env.extra is None:
        return None
    if find_spec(env.module) is not None:
        return None
    return install_command(env.extra)


def _description(name: str) -> str:
    known = KNOWN.get(name)
    if known is not None:
        return known.help
    try:
        return (inspect.getdoc(find(name)) or "").partition("\n")[0]
    except (UnknownEnvironment, ImportError) as error:
        return " ".join(str(error).split())
