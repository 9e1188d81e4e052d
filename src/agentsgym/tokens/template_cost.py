"""Limits the time and memory of an untrusted chat template before this process renders with it.

A template is a program: nested loops or one multiplication can use up the machine. A template that
only loops over the messages once is harmless by its syntax tree. Any other first renders short
conversations in a child process under limits. It could still wait for a conversation that these
checks do not contain, so powers and huge constants, which only such a template needs, are refused.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import nodes

from agentsgym.tokens.syntax import BLOCKS, parse_template

_SCRIPT = Path(__file__).with_name("template_sandbox.py")
_CPU_SECONDS = 5
_MEMORY = 2 << 30
_CHARACTERS = 10_000_000
_PATIENCE = 60.0  # seconds, enough on a busy machine
_LARGEST_NUMBER = 1_000_000

_CHEAP_FILTERS = frozenset(
    {"trim", "length", "count", "string", "lower", "upper", "capitalize", "default", "safe"}
)
_CHEAP_METHODS = frozenset(
    {"split", "strip", "lstrip", "rstrip", "startswith", "endswith", "get", "lower", "upper"}
)
_COSTLY = (
    nodes.Mul,
    nodes.Mod,
    nodes.NSRef,
    nodes.Macro,
    *BLOCKS,
)
_MOST_SETS = 4  # each one may double a text


class TemplateRefused(ValueError):
    """A chat template that would take more time or memory than any conversation needs."""


def check_cost(template: str, variables: Mapping[str, Any]) -> None:
    """Raises TemplateRefused for a template that costs too much."""
    plain = {name: value for name, value in variables.items() if _is_json(value)}
    problem = _problem(template, json.dumps(plain, sort_keys=True))
    if problem is not None:
        raise TemplateRefused(f"the chat template is refused: {problem}")


@lru_cache(maxsize=64)
def _problem(template: str, variables: str) -> str | None:
    tree = parse_template(template)
    if tree is None or not _costly_nodes(tree):
        return None
    return _absurd(tree) or _tried(template, variables)


def _costly_nodes(tree: nodes.Template) -> bool:
    """Whether the template has any node that may make its cost grow without bound."""
    loops = list(tree.find_all(nodes.For))
    return (
        any(isinstance(node, _COSTLY) for node in tree.find_all(nodes.Node))
        or any(loop.recursive or any(loop.find_all(nodes.For)) for loop in loops)
        or len(list(tree.find_all(nodes.Assign))) > _MOST_SETS
        or any(item.name not in _CHEAP_FILTERS for item in tree.find_all(nodes.Filter))
        or any(not _cheap_call(call) for call in tree.find_all(nodes.Call))
        or any(_absurd_parts(tree))
    )


def _cheap_call(call: nodes.Call) -> bool:
    called = call.node
    if isinstance(called, nodes.Name):
        return called.name in ("raise_exception", "strftime_now")
    return isinstance(called, nodes.Getattr) and called.attr in _CHEAP_METHODS


def _absurd(tree: nodes.Template) -> str | None:
    return next(_absurd_parts(tree), None)


def _absurd_parts(tree: nodes.Template) -> Iterator[str]:
    """Reasons to refuse a template: constructs that no honest chat template needs."""
    if any(tree.find_all(nodes.Pow)):
        yield "it raises to a power"
    for const in tree.find_all(nodes.Const):
        if isinstance(const.value, int | float) and abs(const.value) > _LARGEST_NUMBER:
            yield f"it counts with {const.value}"


def _tried(template: str, variables: str) -> str | None:
    """The problem when a child process rendered short conversations, or None."""
    task = {
        "template": template,
        "variables": json.loads(variables),
        "cpu_seconds": _CPU_SECONDS,
        "memory": _MEMORY,
        "characters": _CHARACTERS,
    }
    try:
        ended = subprocess.run(  # noqa: S603 - our own script; the template is only its input
            [sys.executable, "-P", str(_SCRIPT)],
            input=json.dumps(task),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it needs more than {_PATIENCE:g} seconds for short conversations"
    if ended.returncode == 0:
        return None
    if "MemoryError" in ended.stderr:
        return f"it needs more than {_MEMORY >> 30} GiB of memory for short conversations"
    if ended.returncode > 0 and ended.stderr:
        return f"it could not be tried:\n{ended.stderr}"
    if ended.returncode < 0:
        return f"it needs more than {_CPU_SECONDS} seconds of CPU time for short conversations"
    return f"it writes more than {_CHARACTERS} characters for a short conversation"


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
