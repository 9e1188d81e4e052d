"""Grades an answer by its question's kind.

Texts, choices and numbers are compared in this process. math-verify and reasoning-gym's scorers run
in one child process with limits on memory and time, which is killed and replaced if it hangs.
"""

import json
import os
import re
import secrets
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping
from functools import lru_cache
from multiprocessing.connection import wait
from typing import Any

from agentsgym.child_process import bare_environment, start_python
from agentsgym.envs.classical_reasoning.answers import is_right, kind_of, same_value
from agentsgym.envs.classical_reasoning.gym_tasks import TEXT, digest
from agentsgym.envs.classical_reasoning.questions import Question
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

    def is_right(self, question: Question, given: str, grading: str) -> bool:
        """Whether `given` answers the question. `grading` other than "auto" overrides its kind.

        Raises MissingExtra if a package for mathematics or reasoning-gym is missing, ValueError if
        reasoning-gym's entry is not the row's question, and GraderFailed if no process starts.
        """
        if question.kind == "reasoning_gym":
            return self._is_right_in_gym(question, given)
        return any(self._matches(question, right, given, grading) for right in question.answers)

    def _matches(self, question: Question, right: str, given: str, grading: str) -> bool:
        kind = grading if grading != "auto" else question.kind
        if kind == "auto":
            kind = kind_of(question.question, right)
        if kind != "math":
            return is_right(kind, right, given, self._tolerance)
        return is_right("exact", right, given, self._tolerance) or self._equal(right, given)

    def _equal(self, right: str, given: str) -> bool:
        """Whether math-verify considers two texts equal; it only gets `readable` ones."""
        ensure("math_verify", "reasoning")
        equal = same_value(right.strip("$ "), given.strip("$ "))
        if equal is not None:
            return equal
        if not (readable(right) and readable(given)):
            return False
        return self._verdict("math", right=right, given=given)

    def _is_right_in_gym(self, question: Question, given: str) -> bool:
        task = question.task or ""
        if task in TEXT:
            return any(TEXT[task](given, right) for right in question.answers)
        ensure("reasoning_gym", "reasoning")
        return self._verdict(
            "reasoning_gym",
            task=task,
            given=given,
            seed=question.seed,
            index=question.index,
            size=question.size,
            question=digest(question.question),
            right=question.answers[0][:2_000],
        )

    def _compare(self, kind: str, **request: Any) -> bool:
        with self._lock:
            child, self._child = self._child or _Child(), None
            child.prepare(kind)
            reply = child.answer({"kind": kind, **request}, self._timeout)
            if reply is None or not isinstance(reply.get("right"), bool):
                child.kill()
                return False
            self._child = child
        if "error" in reply:
            raise ValueError(str(reply["error"]))
        return bool(reply["right"])

    def close(self) -> None:
        """End the child process if it runs."""
        with self._lock:
            if self._child is not None:
                self._child.kill()
                self._child = None


def readable(text: str) -> bool:
    """Whether math-verify may read a text: short LaTeX without what it would compute rather than
    compare (sums, products, integrals), and without long numbers."""
    fits = len(text) <= MAX_MATHEMATICS and _MATHEMATICS.fullmatch(text) is not None
    return fits and _TOO_LARGE.search(text) is None


class _Child:
    """The process. It gets one request at a time; a reply must carry its request's number."""

    def __init__(self) -> None:
        self._process = start_python(
            _PROGRAM,
            env={**bare_environment(), "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        weakref.finalize(self, _end, self._process)
        self._prepared: set[str] = set()

    def prepare(self, kind: str) -> None:
        """Import what requests of a kind need, which may take longer than an answer.

        Raises GraderFailed if the process does not start or cannot import it.
        """
        if kind in self._prepared:
            return
        if not (self.answer({"kind": kind, "prepare": True}, START_SECONDS) or {}).get("right"):
            self.kill()
            raise GraderFailed(f"the grader's process could not prepare for {kind}")
        self._prepared.add(kind)

    def answer(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any] | None:
        """The reply; None if the process died, did not answer in `timeout` seconds, or wrote
        anything but one reply to this request."""
        assert self._process.stdin is not None and self._process.stdout is not None
        number = secrets.token_hex(16)
        message = json.dumps({**request, "id": number}) + "\n"
        try:
            if wait([self._process.stdout.fileno()], 0):  # it wrote something without a request
                return None
            self._process.stdin.write(message.encode())
        except OSError:
            return None
        line = self._line(time.monotonic() + timeout)
        try:
            reply = json.loads(line) if line else None
        except ValueError:
            return None
        return reply if isinstance(reply, dict) and reply.get("id") == number else None

    def _line(self, deadline: float) -> bytes | None:
        assert self._process.stdout is not None
        pipe, line = self._process.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not wait([pipe], left):
                return None
            part = os.read(pipe, MAX_REPLY_BYTES)
            line += part
            if not part or len(line) > MAX_REPLY_BYTES or b"\n" in line[:-1]:
                return None
        return line

    def kill(self) -> None:
        _end(self._process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
