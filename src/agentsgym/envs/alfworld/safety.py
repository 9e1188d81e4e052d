"""Protects this process from an untrusted game file.

No expression of a game reaches Python's `eval`, and no name in it overflows the planner's buffers.
"""

import json
from pathlib import Path
from typing import Any

from agentsgym.envs.alfworld.expressions import RefusedGame, compiled, evaluate
from agentsgym.envs.extras import require

MAX_LINE = 1000
"""The planner, in C, copies the names of facts and operators (one per input line) into buffers of
1,024 bytes without a check; longer names would corrupt its memory."""


MAX_BYTES = 8 * 1024 * 1024
"""Official games have about 60 KB."""


class SafeExpressions:
    """Replaces the engine's `eval` by our evaluator, from `apply` until `restore`."""

    def __init__(self) -> None:
        textgen = require("textworld.envs.pddl.textgen", "textworld")
        self._symbol, self._terminal = textgen.EvalSymbol, textgen.TerminalSymbol
        self._stock = {name: vars(self._symbol)[name] for name in ("__init__", "derive")}

    def apply(self) -> None:
        """Install our evaluator."""
        stock_init, terminal = self._stock["__init__"], self._terminal

        def init(symbol: Any, expression: str, *arguments: Any, **keywords: Any) -> None:
            compiled(expression)  # refuses a bad game when it is loaded
            stock_init(symbol, expression, *arguments, **keywords)

        def derive(symbol: Any, context: Any = None) -> list[Any]:
            known = (context or symbol.context)["variables"]
            return [terminal(evaluate(symbol.expression, known))]

        self._symbol.__init__, self._symbol.derive = init, derive

    def restore(self) -> None:
        """Restore the engine's own functions."""
        for name, stock in self._stock.items():
            setattr(self._symbol, name, stock)


class CheckedPlanner:
    """The planner's library; refuses input that would crash it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def load_sas(self, sas: bytes) -> None:
        """Load a translated game. Raises RefusedGame."""
        self._library.load_sas(_checked(sas))

    def load_sas_replan(self, sas: bytes) -> None:
        """The same for the planner. Raises RefusedGame."""
        self._library.load_sas_replan(_checked(sas))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


def _checked(sas: bytes) -> bytes:
    if max(map(len, sas.split(b"\n"))) > MAX_LINE:
        raise RefusedGame(f"a game's names make a line of over {MAX_LINE} characters")
    return sas


def check_game(game_file: str) -> None:
    """Raise RefusedGame for a file that is not a valid `game.tw-pddl`."""
    path = Path(game_file)
    if path.stat().st_size > MAX_BYTES:
        raise RefusedGame(f"{game_file} is larger than {MAX_BYTES} bytes")
    try:
        game = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RefusedGame(f"{game_file} is not a game: {error}") from None
    for part in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(game, dict) or not isinstance(game.get(part), str):
            raise RefusedGame(f"{game_file} is not a game: it has no text {part!r}")
    if any(mark in game[part] for mark in "{}" for part in ("pddl_domain", "pddl_problem")):
        # names with braces would be read as placeholders in commands
        raise RefusedGame(f"{game_file}: there are braces in its PDDL")
