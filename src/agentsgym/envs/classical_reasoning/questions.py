"""Questions from files and from reasoning-gym, and which of them are held out."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints

from agentsgym.envs.extras import require
from agentsgym.types.names import ConfigError
from agentsgym.types.settings import Section, read
from agentsgym.types.text import short_repr

_MOST_REPORTED = 20
_DATA = resources.files("agentsgym.envs.classical_reasoning") / "data"
OFFERED = frozenset((_DATA / "gym_tasks.txt").read_text("utf-8").split())
"""The tasks of reasoning-gym with one right answer, which `same_answer` recognizes. All others are
refused, and none of the package's scorers is called: some pass an answer to `eval`, to
`sympy.parse_expr` or to `Fraction`."""

MAX_SEED = 2**32 - 1
REFUSAL = "several answers may be right, or it has not been reviewed"


class BadQuestions(ValueError):
    """A question file has bad rows; the message names each by its number, from 1."""


def _text(value: Any) -> str:
    """A number or a text, without outer white space."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if (number and value == value) or (isinstance(value, str) and value.strip()):
        return str(value).strip()
    raise ValueError(f"must be a text or a number, got {short_repr(value)}")


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


class KnownQuestion(Section):
    """A question, its right answers (a text, a number, or a list of these, of which each counts as
    right), and how answers are compared: as one of the kinds exact, choice, number and math, "auto"
    (decided by the right answer), or as reasoning-gym's (`gym_tasks.same_answer`).
    """

    model_config = ConfigDict(frozen=True)

    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    answer: Annotated[
        list[Annotated[str, BeforeValidator(_text)]], BeforeValidator(_listed), Field(min_length=1)
    ]
    kind: Literal["exact", "choice", "number", "math", "auto", "reasoning_gym"] = "auto"

    def as_task(self) -> dict[str, Any]:
        """The question in the form of `task_data`."""
        return self.model_dump(exclude_defaults=True)

    @classmethod
    def from_task(cls, row: Any) -> "KnownQuestion":
        """The inverse of `as_task`. Raises ConfigError with the row's problem."""
        if not isinstance(row, Mapping):
            raise ConfigError(f"must be a mapping with question and answer, got {short_repr(row)}")
        return read(cls, dict(row))


def load_questions(path: str | Path) -> list[KnownQuestion]:
    """The questions of a JSON-lines file, without blank lines.

    Raises BadQuestions if there is no question, or with the numbers of all rows that are not JSON,
    are incomplete, or repeat an earlier question; FileNotFoundError if there is no such file.
    """
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    questions: list[KnownQuestion] = []
    problems: list[str] = []
    first_seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            question = KnownQuestion.from_task(json.loads(line))
            first = first_seen.setdefault(_words(question), number)
            if first != number:
                raise ValueError(f"repeats the question of row {first}")
        except json.JSONDecodeError as error:
            problems.append(f"row {number}: is not JSON ({error})")
        except ValueError as error:
            problems.append(f"row {number}: {error}")
        else:
            questions.append(question)
    if problems:
        more = len(problems) - _MOST_REPORTED
        shown = problems[:_MOST_REPORTED] + ([f"and {more} more"] if more > 0 else [])
        raise BadQuestions(f"{path} has {len(problems)} bad rows:\n  " + "\n  ".join(shown))
    if not questions:
        raise BadQuestions(f"{path} contains no questions")
    return questions


def shipped_questions() -> list[KnownQuestion]:
    """The small question set in the package."""
    return load_questions(str(_DATA / "questions.jsonl"))


def gym_questions(tasks: Sequence[str], count: int, seed: int) -> list[KnownQuestion]:
    """`count` distinct questions of each task; fewer if twice that number contains fewer.

    Raises MissingExtra without reasoning-gym, ConfigError for a task that is unknown or not
    offered.
    """
    package = require("reasoning_gym", "reasoning")
    known = package.factory.DATASETS
    questions: list[KnownQuestion] = []
    for task in tasks:
        if task not in known or task not in OFFERED:
            why = REFUSAL if task in known else "reasoning-gym does not know it"
            raise ConfigError(
                f"env_config['gym_tasks'] names {task!r}, which is not supported: {why}; supported "
                f"tasks are {', '.join(sorted(OFFERED & known.keys()))}"
            )
        questions += _distinct(package, task, count, seed)
    return questions


def _distinct(package: ModuleType, task: str, count: int, seed: int) -> list[KnownQuestion]:
    questions: dict[str, KnownQuestion] = {}
    for entry in package.create_dataset(task, seed=seed, size=2 * count):
        if len(questions) == count:
            break
        if not str(entry["answer"]).strip():
            continue  # nobody can say it
        text = str(entry["question"])
        questions.setdefault(
            text,
            KnownQuestion(question=text, answer=[str(entry["answer"])], kind="reasoning_gym"),
        )
    return list(questions.values())


def split_questions(
    questions: Sequence[KnownQuestion], eval_share: float
) -> tuple[list[KnownQuestion], list[KnownQuestion]]:
    """Training and held-out questions, disjoint, both in the given order.

    Each side has at least one question if there are two or more.
    """
    held_out = [_place(question) < eval_share for question in questions]
    if len(questions) > 1 and len(set(held_out)) == 1:
        held_out[-1] = not held_out[-1]
    train = [q for q, out in zip(questions, held_out, strict=True) if not out]
    return train, [q for q, out in zip(questions, held_out, strict=True) if out]


def _place(question: KnownQuestion) -> float:
    """A number in [0, 1) that depends only on the question's words."""
    digest = hashlib.blake2b(_words(question).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _words(question: KnownQuestion) -> str:
    return " ".join(question.question.casefold().split())
