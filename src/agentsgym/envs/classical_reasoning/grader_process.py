"""The program of a grader's own process: one JSON request per line, one JSON answer per line.

Run as `python -m agentsgym.envs.classical_reasoning.grader_process`. It grades what may hang or
crash on hostile input (sympy behind math-verify, the scorers of reasoning-gym) and ends when its
standard input does.
"""

import functools
import importlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

MEMORY_BYTES = 4 * 2**30


def main() -> None:
    """Answer requests until the input ends. What a grader prints goes to standard error."""
    _limit_memory()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _reply(answers, {"ready": True})
    for line in sys.stdin:
        _reply(answers, _answer(json.loads(line)))


def _reply(answers: TextIO, reply: Mapping[str, Any]) -> None:
    answers.write(json.dumps(reply) + "\n")
    answers.flush()


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"right": grade(request)}
    except Exception as error:  # hostile input may raise anything: it is wrong, and we go on
        return {"right": False, "error": f"{type(error).__name__}: {error}"}


def grade(request: Mapping[str, Any]) -> bool:
    """Grade one request: `kind` "warm", "math" (`right`, `given`) or "reasoning_gym"."""
    if request["kind"] == "warm":
        return all(importlib.import_module(module) for module in request["modules"])
    if request["kind"] == "math":
        return _grade_math(request["right"], request["given"])
    entry_of = _reasoning_gym(request["task"], request["seed"], request["size"])
    entry = entry_of[request["index"]]
    return float(entry_of.score_answer(request["given"], entry)) >= 1.0


def _grade_math(right: str, given: str) -> bool:
    math_verify = importlib.import_module("math_verify")
    targets = [math_verify.parse(_mathematics(text)) for text in (right, given)]
    return bool(all(targets) and math_verify.verify(*targets))


def _mathematics(text: str) -> str:
    return text if "$" in text or "\\boxed" in text else f"${text}$"


@functools.lru_cache(maxsize=64)
def _reasoning_gym(task: str, seed: int, size: int) -> Any:
    package = importlib.import_module("reasoning_gym")
    return package.create_dataset(task, seed=seed, size=size)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    main()
