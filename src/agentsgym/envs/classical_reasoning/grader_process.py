"""The program of a grader's own process: one JSON request per line, one JSON reply per line.

It serves what needs math-verify or reasoning-gym, and gives up files, network, programs and most
of its memory before it reads anything (`confinement`). A reply carries its request's number, which
is drawn at random for every request, and our side takes exactly one reply for each, so that
nothing written earlier, later or twice counts.

Nothing that an answer says is evaluated: a question comes here after its answer has matched a
grammar, or for a scorer that only compares. Where an answer becomes an expression of sympy's, which
may take any time, that happens in a fork, which has no way to reply: it can only write one
byte, the verdict of its own answer, and sympy's own evaluator is taken out of it. So what
is left if sympy or math-verify had a hole through which a text of the grammar ran as code: that
code could forge the verdict of the one answer that brought it, reach no other answer's, read files,
and change nothing.
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
"""How many data sets are kept for further questions of theirs."""

_EXAMPLES = (
    r"\frac{x+1}{2}", r"x^2 - 2x + 1", r"(x+1)^{2}", r"\sqrt{3}", r"2\pi", "x = 3", r"\{1, 2\}",
    "[0, 1)", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\sin(x)", "10!", "e^{i}", "(1, 2)",
    r"x \le 3", r"\frac{\sqrt{2}}{2}", r"30^\circ", r"3\cdot 10^{4}", r"\text{yes}", r"25\%",
)  # fmt: skip


class NoVerdict(RuntimeError):
    """A fork died or took too long: the answer is wrong, this time."""


class NoSuchEntry(ValueError):
    """The entry that a row names can't be made, or is another question than the row's."""


def main() -> None:
    """Answer requests until the input ends. What a grader prints goes to standard error."""
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
    except Exception:  # a scorer may raise anything on an odd answer, which is then wrong
        return {"right": False}


def grade(request: Mapping[str, Any]) -> bool:
    """Grade one request: `kind` "warm", "math" (`right`, `given`) or "reasoning_gym"."""
    if request["kind"] == "warm":
        return _warm(request["modules"])
    if request["kind"] == "math":
        return _apart(lambda: _same_mathematics(request["right"], request["given"]), request)
    return _grade_gym(request)


def _warm(modules: list[str]) -> bool:
    """Import what requests need, so that forks of this process have it."""
    for module in modules:
        importlib.import_module(module)
    if "math_verify" in modules:
        for example in _EXAMPLES:
            _same_mathematics(example, "1")
    gc.freeze()  # a fork's collector would touch, and so copy, every page
    return True


def _same_mathematics(right: str, given: str) -> bool:
    """Whether math-verify takes two texts of LaTeX for equal. Its other way of reading is never
    asked for: it evaluates."""
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
    """The data set and its entry that a request names."""
    task, seed, size = request["task"], request["seed"], request["size"]
    try:
        data = _data_set(task, seed, size)
        return data, _entry(data, request)
    except NoSuchEntry:
        raise
    except Exception as error:
        raise NoSuchEntry(
            f"reasoning-gym can't make {task}, seed {seed}, {request['index']} of {size}: {error}"
        ) from error


def _entry(data: Any, request: Mapping[str, Any]) -> Mapping[str, Any]:
    if request["task"] == "word_ladder":  # its entries differ from process to process
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
    """Let sympy import and cache once what every fork would import again."""
    example = {"metadata": {"integrand": "x*sin(x) + 2*x*exp(x**2) + 3/x", "variable": "x"}}
    ENTRY_SCORERS["antiderivative"]("sin(x) - x*cos(x) + exp(x**2) + 3*log(x) + C", example)
    gc.freeze()


@functools.lru_cache(maxsize=KEPT_TASKS)
def _data_set(task: str, seed: int, size: int) -> Any:
    package = importlib.import_module("reasoning_gym")
    return package.create_dataset(task, seed=seed, size=size)


def _apart(verdict: Callable[[], bool], request: Mapping[str, Any]) -> bool:
    """Find a verdict in a fork. Raises NoVerdict where it dies, hangs or says anything else."""
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
    """Never returns: the fork ends here whatever happens."""
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
    """Take `eval` out of sympy: it stands behind `parse_expr` and `sympify` of texts. Numbers that
    latex2sympy read come that way too, and are made here."""
    parser = importlib.import_module("sympy.parsing.sympy_parser")
    setattr(parser, "eval_expr", _number)  # noqa: B010 (mypy knows no such name of a module)


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
