"""Describes the error that ended a run in one sentence."""

import errno
import re
from collections.abc import Iterator

from agentsgym.rollout import EveryRolloutFailed

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EFBIG: "the file would be larger than this process may write",
    errno.EIO: "the disk reports an error",
}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_TORCH_WRITER = re.compile(r"PytorchStreamWriter|inline_container\.cc|Parent directory .* does not")


def one_sentence(error: BaseException) -> str:
    """The error on one line; a disk problem is named as such."""
    if isinstance(error, EveryRolloutFailed):
        return error.sentence
    text = " ".join(str(error).split())
    return disk_problem(error) or (
        f"{type(error).__name__}: {text}" if text else type(error).__name__
    )


def disk_problem(error: BaseException) -> str | None:
    """The reason why files cannot be written, if that is the cause of `error`; else None."""
    for cause in _chain(error):
        number = _error_number(cause)
        if number in _REASONS:
            name = getattr(cause, "filename", None)
            return f"{name or 'a file'} cannot be written: {_REASONS[number]}"
        if isinstance(cause, RuntimeError) and _TORCH_WRITER.search(str(cause)):
            return "a checkpoint cannot be written: is the disk full?"
    return None


def _error_number(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    found = _OS_ERROR.search(str(error))  # Rust libraries put the number into their message
    return int(found[1]) if found else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
