"""Questions from files and from reasoning-gym, and which of them are held out."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from agentsgym.envs.classical_reasoning.gym_tasks import MAX_SEED, MAX_SIZE, refusal
from agentsgym.envs.extras import require
from agentsgym.types.errors import ConfigError

KINDS = ("exact", "choice", "number", "math")
_KEYS = {"question", "answer", "kind"}
_MOST_REPORTED = 20


class BadQuestions(ValueError):
    """A question file has bad rows; the message names each by its number, from 1."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its right answers, and how answers are compared.

    `kind` is one of `KINDS`, "auto" (decided by the right answer), or "reasoning_gym", whose own
    scorer decides; then `task`, `seed` and `size` name the data set and `index` the entry.
    """

    question: str
    answers: tuple[str, ...]
    kind: str = "auto"
    task: str | None = None
    index: int = 0
    seed: int = 0
    size: int = 0

    def as_task(self) -> dict[str, Any]:
        """The question in the form of `task_data`."""
        row: dict[str, Any] = {"question": self.question, "answer": list(self.answers)}
        if self.kind != "auto":
            row["kind"] = self.kind
        if self.task is not None:
            place = {"index": self.index, "seed": self.seed, "size": self.size}
            row |= {"task": self.task, **place}
        return row

    @staticmethod
    def from_task(row: Mapping[str, Any]) -> "Question":
        """The inverse of `as_task`. Raises ValueError with the row's problem."""
        if isinstance(row, Mapping) and row.get("kind") == "reasoning_gym":
            return _gym_question(row)
        return read_row(row)


def _gym_question(row: Mapping[str, Any]) -> Question:
    """A question from reasoning-gym. Rows are not trusted, so all values are checked."""
    question, answers, task = row.get("question"), row.get("answer"), row.get("task")
    if not isinstance(question, str) or not isinstance(task, str):
        raise ValueError("needs 'question' and 'task' (texts)")
    if not isinstance(answers, list | tuple) or not answers:
        raise ValueError(f"needs 'answer' (a list of texts), got {answers!r:.100}")
    if not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"needs 'answer' (a list of texts), got {answers!r:.100}")
    reason = refusal(task)
    if reason is not None:
        raise ValueError(f"names reasoning-gym's {task!r:.60}, which is not supported: {reason}")
    size = _whole(row, "size", 1, MAX_SIZE)
    index, seed = _whole(row, "index", 0, size - 1), _whole(row, "seed", 0, MAX_SEED)
    return Question(question, tuple(answers), "reasoning_gym", task, index, seed, size)


def _whole(row: Mapping[str, Any], name: str, lowest: int, highest: int) -> int:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        allowed = f"a whole number from {lowest} to {highest}"
        raise ValueError(f"needs {name!r} ({allowed}), got {value!r:.100}")
    return value


def read_row(row: Any) -> Question:
    """A question from a row `{question, answer}`, optionally with `kind`.

    `answer` is a text, a number, or a list of these, of which each counts as right. Raises
    ValueError with the row's problem.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"is {type(row).__name__}, not an object with question and answer")
    unknown = sorted(set(row) - _KEYS)
    if unknown:
        raise ValueError(f"has the unknown key {unknown[0]!r}; allowed keys are {sorted(_KEYS)}")
    question = row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"needs a question (a text), got {question!r}")
    kind = row.get("kind", "auto")
    if kind not in (*KINDS, "auto"):
        raise ValueError(f"has the kind {kind!r}; allowed kinds are {', '.join(KINDS)}")
    return Question(question.strip(), _answers(row.get("answer")), kind)


def _answers(value: Any) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value]
    texts = [_answer_text(item) for item in given]
    if not texts:
        raise ValueError("needs an answer (a text or a number), got an empty list")
    return tuple(texts)


def _answer_text(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        return repr(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError(f"needs an answer (a text or a number), got {value!r}")


def load_questions(path: str | Path) -> list[Question]:
    """The questions of a JSON-lines file, without blank lines.

    Raises BadQuestions if there is no question, or with the numbers of all rows that are not JSON,
    are incomplete, or repeat an earlier question; FileNotFoundError if there is no such file.
    """
    text = Path(path).read_text(encoding="utf-8")
    return parse_questions(text.splitlines(), str(path))


def shipped_questions() -> list[Question]:
    """The small question set in the package."""
    folder = resources.files("agentsgym.envs.classical_reasoning") / "data"
    text = (folder / "questions.jsonl").read_text(encoding="utf-8")
    return parse_questions(text.splitlines(), "questions.jsonl")


def parse_questions(lines: Iterable[str], source: str) -> list[Question]:
    """The questions of JSON lines; see `load_questions`."""
    questions: list[Question] = []
    problems: list[str] = []
    first_seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            question = read_row(json.loads(line))
            _refuse_repetition(question, number, first_seen)
        except ValueError as error:
            problems.append(f"row {number} {_plain(error)}")
        else:
            questions.append(question)
    if problems:
        raise BadQuestions(_report(source, problems))
    if not questions:
        raise BadQuestions(f"{source} contains no questions")
    return questions


def _refuse_repetition(question: Question, number: int, first_seen: dict[str, int]) -> None:
    key = " ".join(question.question.casefold().split())
    if first_seen.setdefault(key, number) != number:
        raise ValueError(f"repeats the question of row {first_seen[key]}")


def _plain(error: ValueError) -> str:
    return f"is not JSON ({error})" if isinstance(error, json.JSONDecodeError) else str(error)


def _report(source: str, problems: list[str]) -> str:
    shown = problems[:_MOST_REPORTED]
    more = len(problems) - len(shown)
    rest = [f"and {more} more"] if more else []
    return f"{source} has {len(problems)} bad rows:\n  " + "\n  ".join([*shown, *rest])


def gym_questions(tasks: Sequence[str], count: int, seed: int) -> list[Question]:
    """`count` distinct questions of each task; fewer if twice that number contains fewer.

    Raises MissingExtra without reasoning-gym, ConfigError for a task that is unknown or not
    offered.
    """
    package = require("reasoning_gym", "reasoning")
    known = package.factory.DATASETS
    questions: list[Question] = []
    for task in tasks:
        if task not in known:
            names = ", ".join(sorted(name for name in known if refusal(name) is None))
            raise ConfigError(
                f"env_config['gym_tasks'] names {task!r}, which reasoning-gym does not know; "
                f"known tasks are {names}"
            )
        reason = refusal(task)
        if reason is not None:
            named = f"env_config['gym_tasks'] names {task!r}"
            raise ConfigError(f"{named}, which is not supported: {reason}")
        questions += _distinct(package, task, count, seed)
    return questions


def _distinct(package: ModuleType, task: str, count: int, seed: int) -> list[Question]:
    size = 2 * count
    entries = package.create_dataset(task, seed=seed, size=size)
    questions: dict[str, Question] = {}
    for index in range(size):
        if len(questions) == count:
            break
        entry = entries[index]
        text, answer = str(entry["question"]), (str(entry["answer"]),)
        questions.setdefault(text, Question(text, answer, "reasoning_gym", task, index, seed, size))
    return list(questions.values())


def split_questions(
    questions: Sequence[Question], eval_share: float
) -> tuple[list[Question], list[Question]]:
    """Training and held-out questions, disjoint, both in the given order.

    Each side has at least one question if there are two or more.
    """
    held_out = [_place(question) < eval_share for question in questions]
    if len(questions) > 1 and len(set(held_out)) == 1:
        held_out[-1] = not held_out[-1]
    train = [q for q, out in zip(questions, held_out, strict=True) if not out]
    return train, [q for q, out in zip(questions, held_out, strict=True) if out]


def _place(question: Question) -> float:
    """A number in [0, 1) that depends only on the question's words."""
    words = " ".join(question.question.casefold().split())
    digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
