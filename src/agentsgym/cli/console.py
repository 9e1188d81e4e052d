"""The terminal: a console for results, a console for errors, and the form of errors."""

import logging
import os
import warnings

import typer
from rich.console import Console
from rich.markup import escape

from agentsgym.types.text import mask_secrets, visible

# Without emoji: ":warning:" in an observation stays text.
out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)

BAD_USAGE, FAILURE, INTERRUPTED = 2, 1, 130


def fail(message: str, status: int = FAILURE) -> typer.Exit:
    """Print a one-line error and return the exception to raise."""
    text = visible(mask_secrets(" ".join(str(message).split())))
    err.print("error:", style="bold red", end=" ")
    err.print(text, markup=False, soft_wrap=True)
    return typer.Exit(status)


def shown(text: str) -> str:
    """Untrusted text, escaped for a console that reads markup."""
    return escape(visible(text))


def quiet_libraries() -> None:
    """Hide the progress bars and notices of other libraries."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.utils\.data")
    # PEFT looks for the base of an adapter on a hub; builtin:NAME is not there.
    warnings.filterwarnings("ignore", message="Could not find a config file in builtin:")

    import datasets
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
