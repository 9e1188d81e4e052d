"""Turns an exception into one sentence and an exit status; a traceback only on request."""

import re
import traceback
from types import TracebackType

import typer

from agentsgym.cli.console import BAD_USAGE, FAILURE, INTERRUPTED, err, fail
from agentsgym.envs import ConfigError, UnknownEnvironment
from agentsgym.envs.extras import MissingExtra, missing_extra
from agentsgym.runs.failures import disk_problem
from agentsgym.types.text import mask_secrets, visible

# Messages of libraries that need another package.
_NOT_INSTALLED = re.compile(r"requires? .{1,60} to be installed|distribution was not found")


def ended_by(error: BaseException, *, debug: bool) -> typer.Exit:
    """Print the error that ended a command, to `debug` with its traceback; return the exception to
    raise."""
    if debug:
        text = visible(mask_secrets("".join(traceback.format_exception(error))))
        err.print(text, markup=False, soft_wrap=True)
    message, status = _explained(error)
    return fail("; ".join([message, *getattr(error, "__notes__", ())]), status)


def _explained(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, ConfigError | UnknownEnvironment | MissingExtra):
        return str(error), BAD_USAGE
    missing = missing_extra(error) if isinstance(error, ImportError) else None
    if missing is not None:
        return str(missing), BAD_USAGE
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "there is not enough memory: reduce the model, the batch or engine.capacity", 1
    if _NOT_INSTALLED.search(str(error)):
        return str(error), BAD_USAGE
    problem = disk_problem(error)
    if problem is not None:
        return problem, FAILURE
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
    text = " ".join(str(error).split())[:300]
    kind = type(error).__name__
    return f"unexpected {kind}: {text}{where}; the same command with --debug shows the traceback"


def _last_frame(error: BaseException) -> TracebackType | None:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last
