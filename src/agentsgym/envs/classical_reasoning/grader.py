"""Grades an answer by its question's kind.

Texts, choices and numbers are compared in this process. math-verify runs in a child process with
limits on memory and time, which is killed and replaced if it hangs.
"""

import json
import re
import socket
import subprocess
import threading
import weakref
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

from agentsgym.child_process import bare_environment, start_python
from agentsgym.envs.classical_reasoning.answers import is_number, is_right, kind_of, same_answer
from agentsgym.envs.classical_reasoning.questions import KnownQuestion
from agentsgym.envs.extras import ensure

START_SECONDS = 120.0
"""Seconds for a new process to import its modules; sympy takes seconds on a busy core."""
MAX_REPLY_BYTES = 2_000
KEPT_VERDICTS = 4_096
MAX_MATHEMATICS = 500
"""Characters of a text that math-verify reads."""

_PROGRAM = "agentsgym.envs.classical_reasoning.grader_process"
_MATHEMATICS = re.compile(r"[A-Za-z0-9\s+\-*/=<>()\[\]{}|.,:;!^_\\&%$'°π√∞≤≥≠±×÷·−∪∩∈∅]*")
_TOO_LARGE = re.compile(r"__|\d{31}|\\(sum|prod|int|lim|input|write|newcommand|def)(?![a-z])")


class GraderFailed(RuntimeError):
    """The grader's process could not be started."""


class Grader:
    """Decides whether answers are right; `tolerance` is relative, for numbers.

    An answer whose comparison takes longer than `timeout` seconds counts as wrong. Thread-safe:
    comparisons in the child process wait for each other.
    """

    def __init__(self, tolerance: float, timeout: float) -> None:
        self._tolerance = tolerance
        self._timeout = timeout
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._verdict = lru_cache(KEPT_VERDICTS)(self._compare)

    def __reduce__(self) -> tuple[type["Grader"], tuple[float, float]]:
        """A copy in another process starts its own child."""
        return Grader, (self._tolerance, self._timeout)

    def is_right(self, question: KnownQuestion, answer: str, grading: str) -> bool:
        """Whether `answer` answers the question. `grading` other than "auto" overrides its kind.

        Raises MissingExtra if math-verify is missing, and GraderFailed if no process starts.
        """
        if question.kind == "reasoning_gym":
            return any(same_answer(answer, right) for right in question.answer)
        return any(self._matches(question, right, answer, grading) for right in question.answer)

    def _matches(self, question: KnownQuestion, right: str, answer: str, grading: str) -> bool:
        kind = grading if grading != "auto" else question.kind
        if kind == "auto":
            kind = kind_of(question.question, right)
        if kind != "math":
            return is_right(kind, right, answer, self._tolerance)
        return is_right("exact", right, answer, self._tolerance) or self._equal(right, answer)

    def _equal(self, right: str, answer: str) -> bool:
        """Whether two texts are the same number, or equal to math-verify, which only gets
        `readable` ones."""
        ensure("math_verify", "reasoning")
        one, other = right.strip("$ "), answer.strip("$ ")
        if is_number(one) and is_number(other) and is_right("number", one, other, 1e-12):
            return True
        both = readable(right) and readable(answer)
        return both and self._verdict(right, answer)

    def _compare(self, right: str, answer: str) -> bool:
        with self._lock:
            child, self._child = self._child or _Child(), None
            reply = child.answer({"right": right, "answer": answer}, self._timeout)
            if reply is None:
                child.kill()
                return False
            self._child = child
        return reply.get("right") is True


def readable(text: str) -> bool:
    """Whether math-verify may read a text: short LaTeX without what it would compute rather than
    compare (sums, products, integrals), and without long numbers."""
    fits = len(text) <= MAX_MATHEMATICS and _MATHEMATICS.fullmatch(text) is not None
    return fits and _TOO_LARGE.search(text) is None


class _Child:
    """A process that compares answers. It gets one request at a time, as JSON through a socket.
    Raises GraderFailed if it does not start."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = start_python(
                _PROGRAM,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                env={**bare_environment(), "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self.kill = weakref.finalize(self, _end, process, self._connection)
        if self._reply(START_SECONDS) is None:
            self.kill()
            raise GraderFailed("the grader's process could not start")

    def answer(self, request: dict[str, Any], timeout: float) -> dict[str, Any] | None:
        """The reply; None if the process died or did not answer in `timeout` seconds."""
        try:
            self._connection.send_bytes(json.dumps(request).encode())
        except OSError:
            return None
        return self._reply(timeout)

    def _reply(self, timeout: float) -> dict[str, Any] | None:
        try:
            if not self._connection.poll(timeout):
                return None
            reply = json.loads(self._connection.recv_bytes(MAX_REPLY_BYTES))
        except (OSError, EOFError, ValueError):
            return None
        return reply if isinstance(reply, dict) else None


def _end(process: "subprocess.Popen[bytes]", connection: Any) -> None:
    process.kill()
    process.wait()
    connection.close()
