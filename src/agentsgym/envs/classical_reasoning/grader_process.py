"""The program of a grader's process, which replies to one request after the other.

It compares answers by math-verify's LaTeX reader. No answer is evaluated: sympy's evaluator of
texts is replaced before anything is read. The process may use little memory and write no file; its
parent kills it if it takes too long.
"""

import contextlib
import functools
import importlib
import json
import re
import resource
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

_EXAMPLES = (
    (r"x^2 - 2x + 1", r"(x-1)^{2}"), (r"\frac{\sqrt{8}}{2}", r"\sqrt{2}"), ("x = 3", r"2\pi"),
    (r"\{1, 2\}", "[0, 1)"), (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\sin(x)"),
    ("10!", "e^{i}"), (r"x \le 3", r"30^\circ"), (r"3\cdot 10^{4}", r"25\%"), ("(1, 2)", "(1, 3)"),
)  # fmt: skip
_LIMITS = {"RLIMIT_AS": 4 * 2**30, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}


def main() -> None:
    """Answer requests until the socket is closed."""
    for name, amount in _LIMITS.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (amount, amount))
    connection = Connection(int(sys.argv[1]))
    _math_verify()
    connection.send_bytes(b"{}")
    with contextlib.suppress(EOFError):
        while True:
            reply = _answer(json.loads(connection.recv_bytes()))
            connection.send_bytes(json.dumps(reply).encode())


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"right": _same_mathematics(request)}
    except Exception:  # math-verify may raise anything on a strange answer, which then is wrong
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


if __name__ == "__main__":
    main()
