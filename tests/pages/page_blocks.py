"""The fenced blocks of every page, and the commands in them and between backticks in the text."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`((?:agentsgym|make|python) [^`]+)`")
# The changelog tells of commands as they were.
WITHOUT = "CHANGELOG.md"


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, its first line in the page, its language and its text."""

    page: str
    line: int
    language: str
    body: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """All pages of the repository."""
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*s/README.md")]
    return sorted(path for path in paths if not str(path).endswith(WITHOUT))


@cache
def blocks() -> tuple[Block, ...]:
    """Every fenced block."""
    return tuple(block for path in pages() for block in _of_page(path))


def _of_page(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(str(path.relative_to(ROOT)), line, match[1], match[2])


def commands(script: str) -> list[str]:
    """The commands of a shell script without comments, each on one line."""
    lines, open_line = [], ""
    for line in script.splitlines():
        open_line = f"{open_line}{line}".removesuffix("\\")
        if line.endswith("\\"):
            continue
        try:
            words = shlex.split(open_line, comments=True)
        except ValueError:  # a quotation that goes on
            open_line += " "
            continue
        open_line = ""
        if words:
            lines.append(shlex.join(words))
    return lines


@cache
def fenced_commands() -> dict[str, Block]:
    """Command → the block in which it stands first."""
    by_command: dict[str, Block] = {}
    for block in blocks():
        if block.language == "bash":
            for command in commands(block.body):
                by_command.setdefault(command, block)
    return by_command


def quoted_commands() -> Iterator[tuple[str, str]]:
    """(page, command) of the commands between backticks."""
    for path in pages():
        prose = _FENCE.sub("", path.read_text(encoding="utf-8"))
        for command in _QUOTED.findall(prose):
            yield str(path.relative_to(ROOT)), command.replace("\n", " ")
