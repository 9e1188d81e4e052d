"""The terminal: one console for results, one for errors, and what errors look like."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

BAD_USAGE, FAILURE, INTERRUPTED = 2, 1, 130


def fail(message: str, status: int = FAILURE) -> typer.Exit:
    """Print one line of error; raise what this returns."""
    text = " ".join(str(message).split())
    err.print("error:", style="bold red", end=" ")
    err.print(text, markup=False, soft_wrap=True)
    return typer.Exit(status)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Within, a configuration that is wrong ends the command with one line and status 2."""
    from agentsgym.envs import ConfigError, UnknownEnvironment

    try:
        yield
    except (ConfigError, UnknownEnvironment) as error:
        raise fail(str(error), BAD_USAGE) from None


def quiet_libraries() -> None:
    """Keep other libraries' progress bars and notices off the screen."""
    import logging
    import os
    import warnings

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.utils\.data")

    import datasets
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
