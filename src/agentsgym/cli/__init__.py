"""The command line. Thin: every command parses, calls a room, and shows what came of it."""


def main() -> None:
    """Entry point of the `agentsgym` command."""
    from agentsgym.cli.app import main as run

    run()
