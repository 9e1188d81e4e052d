"""The terminal: one console for results, one for errors, and what errors look like."""

import typer
from rich.console import Console
from rich.markup import escape

from agentsgym.types.secrets import mask_secrets
from agentsgym.types.visible import visible

# Without emoji: ":warning:" in an observation is text.
out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)

BAD_USAGE, FAILURE, INTERRUPTED = 2, 1, 130


def fail(message: str, status: int = FAILURE) -> typer.Exit:
    """Print one line of error; raise what this returns."""
    text = visible(mask_secrets(" ".join(str(message).split())))
    err.print("error:", style="bold red", end=" ")
    err.print(text, markup=False, soft_wrap=True)
    return typer.Exit(status)


def shown(text: str) -> str:
    """Foreign text for a place where the console reads markup: shown as it is, nothing runs."""
    return escape(visible(text))


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
