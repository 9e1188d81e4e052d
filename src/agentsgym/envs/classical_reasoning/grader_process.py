"""The program of a grader's process: one JSON request per line, one JSON reply per line.

It serves requests that need math-verify or reasoning-gym. Before it reads anything, it gives up
files, network, programs and most of its memory (`confinement`). A reply carries the number of its
request. The number is random and the parent accepts exactly one reply per request, so a reply
written earlier, later or twice does not count.

No answer is evaluated as code: a request arrives here only after its answer has matched a grammar,
or for a scorer that only compares. Turning an answer into a sympy expression may take any time, so
it happens in a fork. The fork cannot reply; it can only write one byte, the verdict on its own
answer, and sympy's evaluator is removed from it. If sympy or math-verify had a hole through which
text of the grammar ran as code, this risk would remain: the code could forge the verdict on its own
answer and read files. It could reach no other answer and change nothing.
"""

import functools
import gc
import importlib
import json
import math
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from agentsgym.envs.classical_reasoning.confinement import allow_time, confine, confine_fork
from agentsgym.envs.classical_reasoning.gym_scorers import ENTRY_SCORERS
from agentsgym.envs.classical_reasoning.gym_tasks import ENTRY, SYMBOLIC, digest

KEPT_TASKS = 8
"""Number of data sets that are kept for further questions."""

_EXAMPLES = (
    r"\frac{x+1}{2}", r"x^2 - 2x + 1", r"(x+1)^{2}", r"\sqrt{3}", r"2\pi", "x = 3", r"\{1, 2\}",
    "[0, 1)", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\sin(x)", "10!", "e^{i}", "(1, 2)",
    r"x \le 3", r"\frac{\sqrt{2}}{2}", r"30^\circ", r"3\cdot 10^{4}", r"\text{yes}", r"25\%",
)  # fmt: skip


class NoVerdict(RuntimeError):
    """A fork died or took too long; this answer counts as wrong."""


class NoSuchEntry(ValueError):
    """The entry that a row names cannot be made, or is not the row's question."""


def main() -> None:
    """Answer requests until the input ends. Graders' printed output goes to standard error."""
    missing = confine()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _send(replies, {"id": "ready", "missing": missing})
    for line in sys.stdin:
        request = json.loads(line)
        allow_time(request.get("seconds"))
        _send(replies, {"id": request["id"], **_answer(request)})


def _send(replies: TextIO, reply: Mapping[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"right": grade(request)}
    except NoSuchEntry as error:
        return {"right": False, "error": str(error)[:300]}
    except NoVerdict:
        return {"right": False, "late": True}
    except Exception:  # a scorer may raise anything on a strange answer, which then is wrong
        return {"right": False}


def grade(request: Mapping[str, Any]) -> bool:
    """Grade one request: `kind` "warm", "math" (`right`, `given`) or "reasoning_gym"."""
    if request["kind"] == "warm":
        return _warm(request["modules"])
    if request["kind"] == "math":
        return _apart(lambda: _same_mathematics(request["right"], request["given"]), request)
    return _grade_gym(request)


def _warm(modules: list[str]) -> bool:
    """Import the modules that requests need, so that forks of this process have them."""
    for module in modules:
        importlib.import_module(module)
    if "math_verify" in modules:
        for example in _EXAMPLES:
            _same_mathematics(example, "1")
    gc.freeze()  # in a fork the collector would touch, and so copy, every page
    return True


def _same_mathematics(right: str, given: str) -> bool:
    """Whether math-verify considers two LaTeX texts equal. Its other parser is never used, because
    it evaluates the text."""
    math_verify = importlib.import_module("math_verify")
    latex = [math_verify.LatexExtractionConfig()]
    read = [
        math_verify.parse(_mathematics(text), latex, parsing_timeout=None)
        for text in (right, given)
    ]
    return bool(all(read) and math_verify.verify(*read, timeout_seconds=None))


def _mathematics(text: str) -> str:
    return text if "$" in text or "\\boxed" in text else f"${text}$"


def _grade_gym(request: Mapping[str, Any]) -> bool:
    task, given = request["task"], request["given"]
    data, entry = _generated(request)
    if task in SYMBOLIC:
        _warm_sympy()
        return _apart(lambda: ENTRY_SCORERS[ENTRY[task]](given, entry), request)
    if task in ENTRY:
        return ENTRY_SCORERS[ENTRY[task]](given, entry)
    score = float(data.score_answer(given, entry))
    return math.isfinite(score) and score >= 1.0


def _generated(request: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """The data set and the entry that a request names."""
    task, seed, size = request["task"], request["seed"], request["size"]
    try:
        data = _data_set(task, seed, size)
        return data, _entry(data, request)
    except NoSuchEntry:
        raise
    except Exception as error:
        raise NoSuchEntry(
            f"reasoning-gym cannot make {task}, seed {seed}, {request['index']} of {size}: {error}"
        ) from error


def _entry(data: Any, request: Mapping[str, Any]) -> Mapping[str, Any]:
    if request["task"] == "word_ladder":  # its entries differ between processes
        first, *_, last = request["right"].split(",")
        return {"metadata": {"start_word": first.strip(), "end_word": last.strip()}}
    entry: Mapping[str, Any] = data[request["index"]]
    if digest(str(entry["question"])) != request["question"]:
        raise NoSuchEntry(
            f"reasoning-gym's {request['task']}, seed {request['seed']}, has another question at "
            f"{request['index']} of {request['size']} than the row; was the row made by another "
            "version?"
        )
    return entry


@functools.cache
def _warm_sympy() -> None:
    """Let sympy import and cache what every fork would otherwise import again."""
    example = {"metadata": {"integrand": "x*sin(x) + 2*x*exp(x**2) + 3/x", "variable": "x"}}
    ENTRY_SCORERS["antiderivative"]("sin(x) - x*cos(x) + exp(x**2) + 3*log(x) + C", example)
    gc.freeze()


@functools.lru_cache(maxsize=KEPT_TASKS)
def _data_set(task: str, seed: int, size: int) -> Any:
    package = importlib.import_module("reasoning_gym")
    return package.create_dataset(task, seed=seed, size=size)


def _apart(verdict: Callable[[], bool], request: Mapping[str, Any]) -> bool:
    """Compute a verdict in a fork. Raises NoVerdict if it dies, hangs or writes anything else."""
    read, write = os.pipe()
    parent, seconds = os.getpid(), float(request["seconds"])
    child = os.fork()
    if child == 0:
        _run_fork(verdict, write, parent, seconds)
    os.close(write)
    try:
        said = _said_within(read, seconds)
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if said not in (b"y", b"n"):
        raise NoVerdict
    return said == b"y"


def _run_fork(verdict: Callable[[], bool], pipe: int, parent: int, seconds: float) -> None:
    """Never returns: the fork always ends here."""
    try:
        os.dup2(pipe, 3)
        for standard in range(3):
            os.dup2(_nowhere(), standard)
        os.closerange(4, 4096)
        confine_fork(parent, seconds)
        _no_evaluator()
        os.write(3, b"y" if verdict() else b"n")
    finally:
        os._exit(0)


@functools.cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_RDONLY)


def _no_evaluator() -> None:
    """Remove `eval` from sympy: `parse_expr` and `sympify` of texts use it. latex2sympy's numbers
    also pass through it, so `_number` replaces it."""
    parser = importlib.import_module("sympy.parsing.sympy_parser")
    setattr(parser, "eval_expr", _number)  # noqa: B010 (mypy does not know this name)


def _number(code: str, *_: Any) -> Any:
    sympy = importlib.import_module("sympy")
    whole = re.fullmatch(r"Integer \((\d{1,30}) \)", code, re.ASCII)
    if whole:
        return sympy.Integer(int(whole[1]))
    decimal = re.fullmatch(r"Float \('([\d.]{1,60})' \)", code, re.ASCII)
    if decimal:
        return sympy.Float(decimal[1])
    raise ValueError("texts are not evaluated here")


def _said_within(pipe: int, seconds: float) -> bytes:
    deadline, said = time.monotonic() + seconds, b""
    while len(said) < 2:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return b""
        part = os.read(pipe, 2)
        if not part:
            break
        said += part
    return said


if __name__ == "__main__":
    main()
