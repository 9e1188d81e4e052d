"""The options with which a user trusts modules and files that a run directory names."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentsgym.runs.trust import Allowed

AllowImportsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-imports",
        metavar="MODULE",
        help="A module that the run directory or its rows may import; may be repeated.",
    ),
]
AllowPathsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-paths",
        metavar="DIR",
        help="A directory in which they may name files, for instance games; may be repeated.",
    ),
]


def allowed_by(modules: list[str] | None, paths: list[str] | None) -> "Allowed":
    """The permissions that the two options give."""
    from agentsgym.runs.trust import Allowed

    return Allowed(tuple(modules or ()), tuple(paths or ()))
