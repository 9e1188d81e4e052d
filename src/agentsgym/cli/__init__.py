"""The command line. Every command is thin: it parses, calls the library, and shows the result."""


def main() -> None:
    """Entry point of the `agentsgym` command."""
    from agentsgym.cli.app import main as run

    run()
