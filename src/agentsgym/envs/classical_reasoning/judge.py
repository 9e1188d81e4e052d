"""Grades an answer by the question's kind, in this process or in the grader's."""

from agentsgym.envs.classical_reasoning.grader import ProcessGrader
from agentsgym.envs.classical_reasoning.grading import is_right, kind_of, same_value
from agentsgym.envs.classical_reasoning.gym_scorers import TEXT_SCORERS
from agentsgym.envs.classical_reasoning.gym_tasks import TEXT, digest, may_be_scored
from agentsgym.envs.classical_reasoning.math_grammar import readable
from agentsgym.envs.classical_reasoning.questions import Question
from agentsgym.envs.extras import ensure


class Judge:
    """Decides whether answers are right.

    Texts, choices and numbers are compared here. math-verify and reasoning-gym's scorers run in a
    process that may hang or crash: after `timeout` seconds the answer counts as wrong.
    """

    def __init__(self, tolerance: float, timeout: float) -> None:
        self._tolerance = tolerance
        self._timeout = timeout
        self._math: ProcessGrader | None = None
        self._gym: ProcessGrader | None = None

    def __reduce__(self) -> tuple[type["Judge"], tuple[float, float]]:
        """A copy in another process starts its own graders."""
        return Judge, (self._tolerance, self._timeout)

    def is_right(self, question: Question, given: str, grading: str) -> bool:
        """Whether `given` answers the question. `grading` other than "auto" overrides its kind.

        Raises MissingExtra if a package for mathematics or reasoning-gym is missing, and ValueError
        if reasoning-gym's entry is not the row's question.
        """
        if question.kind == "reasoning_gym":
            return self._gym_right(question, given)
        return any(self._matches(question, right, given, grading) for right in question.answers)

    def _matches(self, question: Question, right: str, given: str, grading: str) -> bool:
        kind = grading if grading != "auto" else question.kind
        if kind == "auto":
            kind = kind_of(question.question, right)
        if kind != "math":
            return is_right(kind, right, given, self._tolerance)
        return is_right("exact", right, given, self._tolerance) or self._same(right, given)

    def _same(self, right: str, given: str) -> bool:
        """Whether math-verify considers two texts equal; it only gets `readable` texts."""
        if self._math is None:
            ensure("math_verify", "reasoning")
            self._math = ProcessGrader(self._timeout, ["math_verify"])
        equal = same_value(right.strip("$ "), given.strip("$ "))
        if equal is not None:
            return equal
        ours, theirs = readable(right), readable(given)
        if ours is None or theirs is None:
            return False
        return self._math.ask({"kind": "math", "right": ours, "given": theirs})

    def _gym_right(self, question: Question, given: str) -> bool:
        task = question.task or ""
        if task in TEXT:
            return any(TEXT_SCORERS[TEXT[task]](given, right) for right in question.answers)
        if not may_be_scored(task, given):
            return False
        if self._gym is None:
            ensure("reasoning_gym", "reasoning")
            self._gym = ProcessGrader(self._timeout, ["reasoning_gym"])
        request = {"kind": "reasoning_gym", "task": task, "given": given}
        place = {"seed": question.seed, "index": question.index, "size": question.size}
        asked = {"question": digest(question.question), "right": question.answers[0][:2_000]}
        return self._gym.ask(request | place | asked)
