"""The program of a grader's process, which replies to one request after the other.

It compares answers by math-verify's LaTeX reader and by those scorers of reasoning-gym that only
compare. No answer is evaluated: sympy's evaluator of texts is replaced before anything is read. The
process may use little memory and write no file; its parent kills it if it takes too long.
"""

import contextlib
import functools
import importlib
import json
import math
import re
import resource
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

_EXAMPLES = (
    (r"x^2 - 2x + 1", r"(x-1)^{2}"), (r"\frac{\sqrt{8}}{2}", r"\sqrt{2}"), ("x = 3", r"2\pi"),
    (r"\{1, 2\}", "[0, 1)"), (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\sin(x)"),
    ("10!", "e^{i}"), (r"x \le 3", r"30^\circ"), (r"3\cdot 10^{4}", r"25\%"), ("(1, 2)", "(1, 3)"),
)  # fmt: skip
_LIMITS = {"RLIMIT_AS": 4 * 2**30, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}


def main() -> None:
    """Answer requests of one kind until the socket is closed."""
    _, socket, kind = sys.argv
    for name, amount in _LIMITS.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (amount, amount))
    connection = Connection(int(socket))
    prepare, scorer = _KINDS[kind]
    prepare()
    connection.send_bytes(b"{}")
    with contextlib.suppress(EOFError):
        while True:
            reply = _answer(scorer, json.loads(connection.recv_bytes()))
            connection.send_bytes(json.dumps(reply).encode())


def _answer(scorer: "Scorer", request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"right": scorer(request)}
    except Exception:  # a scorer may raise anything on a strange answer, which then is wrong
        return {"right": False}


def _same_mathematics(request: Mapping[str, Any]) -> bool:
    """Whether math-verify considers two LaTeX texts equal. Its other parser is never used, because
    it evaluates the text."""
    math_verify = _math_verify()
    latex = [math_verify.LatexExtractionConfig()]
    right, answer = (
        math_verify.parse(_mathematics(request[name]), latex, parsing_timeout=None)
        for name in ("right", "answer")
    )
    return bool(right and answer and math_verify.verify(right, answer, timeout_seconds=None))


def _mathematics(text: str) -> str:
    return text if "$" in text or "\\boxed" in text else f"${text}$"


@functools.cache
def _math_verify() -> Any:
    """The package, with sympy's evaluator of texts replaced: `parse_expr` and `sympify` use it, and
    latex2sympy's numbers pass through it. Parts of sympy evaluate constants of their own when they
    are first used, so each is used once before."""
    package = importlib.import_module("math_verify")
    latex = [package.LatexExtractionConfig()]
    for right, answer in _EXAMPLES:
        read = [package.parse(f"${text}$", latex, parsing_timeout=None) for text in (right, answer)]
        package.verify(*read, timeout_seconds=None)
    parser = importlib.import_module("sympy.parsing.sympy_parser")
    setattr(parser, "eval_expr", _number)  # noqa: B010 (mypy does not know this name)
    return package


def _number(code: str, *_: Any) -> Any:
    sympy = importlib.import_module("sympy")
    whole = re.fullmatch(r"Integer \((\d{1,30}) \)", code, re.ASCII)
    if whole:
        return sympy.Integer(int(whole[1]))
    decimal = re.fullmatch(r"Float \('([\d.]{1,60})' \)", code, re.ASCII)
    if decimal:
        return sympy.Float(decimal[1])
    raise ValueError("texts are not evaluated here")


def _same_in_gym(request: Mapping[str, Any]) -> bool:
    """Whether reasoning-gym's scorer gives full marks."""
    score = float(_scorer_of(request["task"])(request["answer"], json.loads(request["entry"])))
    return math.isfinite(score) and score >= 1.0


@functools.cache
def _reasoning_gym() -> Any:
    return importlib.import_module("reasoning_gym")


@functools.cache
def _scorer_of(task: str) -> Callable[[str, Any], float]:
    scorer: Callable[[str, Any], float] = _reasoning_gym().get_score_answer_fn(task)
    return scorer


Scorer = Callable[[Mapping[str, Any]], bool]
_KINDS: dict[str, tuple[Callable[[], Any], Scorer]] = {
    "math": (_math_verify, _same_mathematics),
    "reasoning_gym": (_reasoning_gym, _same_in_gym),
}


if __name__ == "__main__":
    main()
