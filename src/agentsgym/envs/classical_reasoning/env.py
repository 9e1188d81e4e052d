"""The environment: it asks questions one after another and grades the answers."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from agentsgym.envs.classical_reasoning.answers import final_answer
from agentsgym.envs.classical_reasoning.grader import Grader
from agentsgym.envs.classical_reasoning.questions import (
    MAX_SEED,
    KnownQuestion,
    gym_questions,
    load_questions,
    shipped_questions,
    split_questions,
)
from agentsgym.envs.dataset import ListedTasks
from agentsgym.envs.settings import EnvSettings, OptionalPath
from agentsgym.types.settings import Count

INSTRUCTIONS = "Think first if you like, then give only your final answer as \\boxed{answer}."


@dataclass(frozen=True, slots=True)
class ReasoningState:
    """An episode: its questions, the open one, wrong answers to it, and how many were right."""

    questions: tuple[KnownQuestion, ...]
    current: int = 0
    wrong: int = 0
    right: int = 0
    feedback: str = ""

    @property
    def done(self) -> bool:
        """Whether all questions are closed."""
        return self.current >= len(self.questions)


def _question(number: int, row: Any) -> KnownQuestion:
    try:
        return KnownQuestion.from_task(row)
    except ValueError as error:
        raise ValueError(f"task_data['questions'][{number}]: {error}") from None


class ClassicalReasoningEnv(ListedTasks):
    """Answer questions whose answers are known.

    `task_data` is `{"questions": [{"question": str, "answer": [str, …]}, …], "seed": int}`, so a
    row needs no file. Each right answer earns 1 / (number of questions), times
    `retry_discount` for every wrong attempt before it. An episode with only right answers is won.
    """

    class Settings(EnvSettings):
        """The settings of ClassicalReasoning."""

        source: Literal["file", "reasoning_gym"] = Field(
            "file", description="source of the questions"
        )
        questions_file: OptionalPath = Field(
            None, description="JSON lines {question, answer}; None: the built-in ones"
        )
        eval_file: OptionalPath = Field(
            None, description="JSON lines to evaluate on; None: a share of the questions"
        )
        eval_share: float = Field(
            0.2, gt=0, lt=1, description="share of questions held out for evaluation"
        )
        gym_tasks: list[str] = Field(["chain_sum"], description="names of reasoning-gym tasks")
        gym_questions: int = Field(
            200, ge=2, le=100_000, description="questions of each reasoning-gym task"
        )
        gym_seed: int = Field(42, ge=0, le=MAX_SEED, description="seed of the reasoning-gym tasks")
        questions_per_episode: Count = Field(1, description="questions per episode")
        attempts: Count = Field(1, description="answers allowed per question")
        retry_discount: float = Field(
            0.5, ge=0, le=1, description="factor on the reward per wrong attempt"
        )
        grading: Literal["auto", "exact", "choice", "number", "math"] = Field(
            "auto", description="how answers are compared; 'auto' decides by the right answer"
        )
        tolerance: float = Field(1e-4, ge=0, description="relative tolerance of numbers")
        grader_timeout: float = Field(
            5.0, ge=0.01, le=600, description="seconds after which a grader is replaced"
        )
        instructions: str = Field(INSTRUCTIONS, description="text under the first question")

    config: Settings
    reward_range = (0.0, 1.0)

    def _set_up(self) -> None:
        if "max_steps_per_episode" not in self.env_config:
            self.config = self.config.model_copy(update={"max_steps_per_episode": self._steps()})
        self._grader = Grader(self.config.tolerance, self.config.grader_timeout)
        self._split: tuple[list[KnownQuestion], list[KnownQuestion]] | None = None

    def _steps(self) -> int:
        """Enough for every attempt and for every forgiven malformed answer."""
        each = self.config.attempts + self.config.error_allowance
        return each * self.config.questions_per_episode

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> ReasoningState:
        rows = task_data.get("questions")
        if not isinstance(rows, list | tuple) or not rows:
            raise ValueError(f"task_data needs 'questions' (a list of rows), got {rows!r:.200}")
        return ReasoningState(tuple(_question(number, row) for number, row in enumerate(rows)))

    def _format_prompt(self, state: ReasoningState, step: int) -> str:
        question = state.questions[min(state.current, len(state.questions) - 1)].question
        count = len(state.questions)
        title = f"Question {state.current + 1} of {count}:\n" if count > 1 else ""
        if step == 0:
            return f"{title}{question}\n\n{self.config.instructions}".rstrip()
        if state.wrong or state.done or not state.feedback:
            return state.feedback
        return f"{state.feedback}\n\n{title}{question}"

    def _step_episode(
        self, session_id: str, state: ReasoningState, action: str
    ) -> tuple[ReasoningState, float, bool, dict[str, Any]]:
        if state.done:
            return state, 0.0, True, {"win": state.right == len(state.questions)}
        answer = final_answer(action)
        if not answer:
            feedback = "I found no answer in what you said. Please answer."
            return replace(state, feedback=feedback), 0.0, False, {"malformed": True, "win": False}
        question = state.questions[state.current]
        right = self._grader.is_right(question, answer, self.config.grading)
        after = self._after(state, right)
        win = after.done and after.right == len(after.questions)
        info: dict[str, Any] = {"win": win, "answer": answer, "right": right}
        if after.done:
            info["stop_reason"] = "win" if win else "answered"
        return after, self._reward(state) if right else 0.0, after.done, info

    def _after(self, state: ReasoningState, right: bool) -> ReasoningState:
        left = self.config.attempts - state.wrong - 1
        if right:
            return replace(
                state,
                current=state.current + 1,
                wrong=0,
                right=state.right + 1,
                feedback="That is right.",
            )
        if left > 0:
            again = f"{left} more attempt{'s' if left > 1 else ''}"
            feedback = f"That is wrong. You have {again}."
            return replace(state, wrong=state.wrong + 1, feedback=feedback)
        return replace(state, current=state.current + 1, wrong=0, feedback="That is wrong.")

    def _reward(self, state: ReasoningState) -> float:
        discount: float = self.config.retry_discount**state.wrong
        return discount / len(state.questions)

    def example_action(self, state: ReasoningState) -> str:
        """The form that the default instructions name, with "answer" as the answer."""
        return "\\boxed{answer}"

    # -- tasks ----------------------------------------------------------------------------------

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """1.0: every question has its answer."""
        return 1.0

    def _tasks(self, held_out: bool) -> list[dict[str, Any]]:
        """The questions, `questions_per_episode` per task; held out is a share, or `eval_file`."""
        self._split = self._split or self._load()
        questions = list(self._split[held_out])
        random.Random("0").shuffle(questions)
        size = self.config.questions_per_episode
        groups = [questions[k : k + size] for k in range(0, len(questions), size)]
        return [
            {"questions": [question.as_task() for question in group], "seed": number}
            for number, group in enumerate(groups)
        ]

    def _load(self) -> tuple[list[KnownQuestion], list[KnownQuestion]]:
        questions = self._questions()
        if self.config.eval_file is None:
            return split_questions(questions, self.config.eval_share)
        held_out = load_questions(self.config.eval_file)
        both = {q.question for q in questions} & {q.question for q in held_out}
        return [q for q in questions if q.question not in both], held_out

    def _questions(self) -> list[KnownQuestion]:
        if self.config.source == "reasoning_gym":
            tasks, count = self.config.gym_tasks, self.config.gym_questions
            return gym_questions(tasks, count, self.config.gym_seed)
        path = self.config.questions_file
        return shipped_questions() if path is None else load_questions(path)
