"""The terminal: a console for results, one for errors, and the form of both."""

import json
import logging
import os
import re
import traceback
import warnings
from types import TracebackType
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from agentsgym.types.text import error_text, mask_secrets, named_error, visible

# Without emoji: ":warning:" in an observation stays text.
out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)

_NARROW, _WIDEST = 10, 10_000
"""Columns of a terminal: what is left of a text that wraps, and more than any table has."""

BAD_USAGE, FAILURE, INTERRUPTED = 2, 1, 130
# Messages of libraries that need another package.
_NOT_INSTALLED = re.compile(r"requires? .{1,60} to be installed|distribution was not found")


def fail(message: str, status: int = FAILURE) -> typer.Exit:
    """Print a one-line error and return the exception to raise."""
    text = visible(mask_secrets(" ".join(str(message).split())))
    err.print("error:", style="bold red", end=" ")
    err.print(text, markup=False, soft_wrap=True)
    return typer.Exit(status)


def shown(text: str) -> str:
    """Untrusted text, escaped for a console that reads markup."""
    return escape(visible(text))


def line(text: str) -> None:
    """Print untrusted text as one line, however wide."""
    out.print(shown(text), soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table. If the terminal is too narrow for it, headings and texts wrap; a column that
    says `no_wrap`, of numbers, does not, and the table may be wider than the terminal."""
    wide = out.options.update(max_width=_WIDEST)
    needed = Measurement.get(out, wide, table).maximum
    if needed > out.width:
        for column in table.columns:
            cells = [Measurement.get(out, wide, cell).maximum for cell in column.cells]
            natural = max([Measurement.get(out, wide, column.header).maximum, *cells])
            kept = max([min(natural, _NARROW), *(cells if column.no_wrap else [])])
            needed -= natural - kept
            if column.no_wrap:
                column.width, column.no_wrap, column.overflow = kept, False, "fold"
        table.width = max(needed, out.width)
    out.print(table, crop=False)


def tell(text: str) -> None:
    """Print what is being waited for, such as servers that start."""
    err.print(shown(text), style="yellow")


def reason(error: str | None) -> str:
    """The last line of a traceback."""
    return str(error).strip().splitlines()[-1]


def print_json(data: Any) -> None:
    """Print figures as JSON."""
    typer.echo(json.dumps(data, indent=2, allow_nan=False))


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


def ended_by(error: BaseException, *, debug: bool) -> typer.Exit:
    """Print the error that ended a command, to `debug` with its traceback; return the exception to
    raise."""
    if debug:
        text = visible(mask_secrets("".join(traceback.format_exception(error))))
        err.print(text, markup=False, soft_wrap=True)
    message, status = _explained(error)
    return fail("; ".join([message, *getattr(error, "__notes__", ())]), status)


def _explained(error: BaseException) -> tuple[str, int]:
    from agentsgym.envs import ConfigError, UnknownEnvironment
    from agentsgym.envs.extras import MissingExtra, missing_extra
    from agentsgym.runs.processes import OTHER_FAILED

    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if type(error).__name__ == "OtherRankFailed":
        return str(error), OTHER_FAILED
    if isinstance(error, ConfigError | UnknownEnvironment | MissingExtra):
        return str(error), BAD_USAGE
    missing = missing_extra(error) if isinstance(error, ImportError) else None
    if missing is not None or _NOT_INSTALLED.search(error_text(error)):
        return str(missing or error), BAD_USAGE
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "there is not enough memory: reduce the model, the batch or engine.capacity", FAILURE
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}", FAILURE
    return (str(error) if _is_ours(error) else _unexpected(error)), FAILURE


def _is_ours(error: BaseException) -> bool:
    """Whether this package wrote the message for users."""
    if type(error).__module__.startswith("agentsgym."):
        return True
    last = _last_frame(error)
    module = last.tb_frame.f_globals.get("__name__", "") if last else ""
    return isinstance(error, ValueError | RuntimeError) and module.startswith("agentsgym.")


def _unexpected(error: BaseException) -> str:
    last = _last_frame(error)
    where = f" ({last.tb_frame.f_code.co_filename}, line {last.tb_lineno})" if last else ""
    what = f"{named_error(error)[:300]}{where}"
    return f"unexpected {what}; the same command with --debug shows the traceback"


def _last_frame(error: BaseException) -> TracebackType | None:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last
