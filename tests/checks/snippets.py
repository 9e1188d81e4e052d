"""Running the code of a page of the docs, and comparing what it says it gives."""

import ast
import re
import sys
import types
from pathlib import Path

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LITERAL = re.compile(r"[\[({'\"\d-]|(True|False|None)\b")
_MODULE = re.compile(r"in a file `(\w+)\.py`")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language ("" for none)."""
    return [body for tag, body in _BLOCK.findall(text) if tag == language]


def run_page(path: Path, given: dict | None = None) -> dict:
    """Run a page's Python blocks one after another in one namespace that has the `given` names.

    An expression with a comment behind it that begins with a literal must equal it. Where the page
    says that its first block is a file, the block becomes that module.
    """
    text = path.read_text()
    code = blocks(text, "python")
    named = _MODULE.search(text)
    if named:
        module = types.ModuleType(named[1])
        sys.modules[named[1]] = module
        exec(compile(code.pop(0), f"{named[1]}.py", "exec"), vars(module))
    namespace: dict = {"__name__": path.stem, **(given or {})}
    for block in code:
        _run(block, namespace, path.name)
    return namespace


def _run(block: str, namespace: dict, name: str) -> None:
    lines = block.splitlines()
    for statement in ast.parse(block).body:
        source = ast.unparse(statement)
        if not isinstance(statement, ast.Expr):
            exec(compile(source, name, "exec"), namespace)
            continue
        value = eval(compile(source, name, "eval"), namespace)
        behind = lines[statement.end_lineno - 1][statement.end_col_offset :].partition("#")[2]
        if _LITERAL.match(behind.strip()):
            expected = _literal(behind.strip())
            assert value == expected, f"{name}: {source} is {value!r}, not {expected!r}"


def _literal(comment: str) -> object:
    """The literal with which a comment begins, which a colon or a comma may end."""
    ends = [match.start() for match in re.finditer(r"[:,] |$", comment)]
    for end in reversed(ends):
        try:
            return ast.literal_eval(comment[:end])
        except SyntaxError:
            continue
    raise AssertionError(f"no value at the beginning of {comment!r}")


def rendered(batch) -> str:
    """A trial as the docs show it: the environment's lines indented, the agent's not."""
    lines = []
    for message in batch["final_completion_messages"][0]:
        own = message["role"] == "assistant"
        for line in message["content"].splitlines():
            lines.append((line if own else f"    {line}").rstrip())
    return "\n".join(lines)
