"""Twenty Questions: implemented here, offline, exact."""

import math
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from pydantic import Field

from agentsgym.envs.action_form import with_form
from agentsgym.envs.action_text import spoken
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import task_dataset
from agentsgym.envs.settings import EnvSettings, TasksPerSolution
from agentsgym.envs.twenty_questions.agents import OptimalAgent, RandomTeacher
from agentsgym.envs.twenty_questions.answerer import Answerer, LLMAnswerer, TableAnswerer
from agentsgym.envs.twenty_questions.best_play import BestPlay
from agentsgym.envs.twenty_questions.knowledge import Attribute, KnowledgeTable, load_table
from agentsgym.envs.twenty_questions.splits import Task, split_tasks
from agentsgym.envs.twenty_questions.words import matches
from agentsgym.types import Agent, Tokenizer
from agentsgym.types.errors import ConfigError
from agentsgym.types.text import short_repr

MAX_ACTION_CHARACTERS = 2000
_GUESS = re.compile(r"\[([^\[\]]*)\]")
_RULES = (
    "Let's play Twenty Questions. I am thinking of {theme}. Ask me questions that can be "
    "answered with Yes or No, one at a time. When you know what it is, put your guess into "
    "square brackets, like [word]. A guess ends the game. You have {turns} turns, the guess "
    "included."
)
_SHORT_RULES = (
    "I am thinking of {theme}. Ask yes/no questions. When you know it, guess it, like [word]."
)
_FORM = "Answer with one question only."
_MALFORMED = "That was neither one question nor one guess in square brackets, so nothing happened."


class State(TypedDict):
    """An episode: the secret, the opening hints, the conversation, whether it is over, and the
    numbers of the table's secrets that agree with all answers so far."""

    solution: str
    hints: list[tuple[str, bool]]
    history: list[tuple[str, str]]
    last_answer: str
    possible: list[int]
    done: bool


class TwentyQuestionsEnv(MultistepEnv):
    """Guess a secret word by asking yes/no questions; a knowledge table answers.

    `task_data` is `{"solution": str, "seed": int}`; the opening hints are drawn from the seed. A
    win earns 1.0, everything else 0.0 (except for `information_reward`). A secret that is not in
    the table is allowed; its answers are "I don't know". With `split="hints"` a task is a secret
    with its hints: every secret is in training and evaluation, but no (secret, hints) pair is in
    both.

    Args:
        tokenizer: see `MultistepEnv`.
        env_config: see `Settings`.
        answerer: answers the questions; the table by default.
    """

    class Settings(EnvSettings):
        """The settings of Twenty Questions."""

        hardcore: bool = Field(False, description="play the harder list of secrets")
        table: Literal["default", "quickstart"] = Field("default", description="knowledge table")
        split: Literal["secrets", "hints"] = Field(
            "secrets", description="how training and evaluation tasks differ"
        )
        hints: int = Field(0, ge=0, le=1000, description="opening hints in the first prompt")
        train_tasks_per_secret: TasksPerSolution = Field(1, description="training tasks per secret")
        eval_tasks_per_secret: TasksPerSolution = Field(
            1, description="evaluation tasks per secret"
        )
        information_reward: float = Field(
            0.0,
            ge=0,
            description="reward of a question per bit, log2 of (secrets possible before / after "
            "the answer)",
        )
        answer_style: Literal["plain", "echo"] = Field(
            "plain",
            description="plain answers and rules, or short ones that repeat the attribute (echo)",
        )

    config: Settings
    reward_range = (0.0, 1.0)

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        env_config: Mapping[str, Any] | None = None,
        *,
        answerer: Answerer | None = None,
    ) -> None:
        super().__init__(tokenizer, env_config)
        self.hardcore: bool = self.config.hardcore
        if self.hardcore and "table" in self.env_config:
            raise ConfigError(
                f"{self.name}: env_config.hardcore has its own table, so it does not allow "
                f"'table', got {self.config.table!r}"
            )
        self.table: KnowledgeTable = load_table("hardcore" if self.hardcore else self.config.table)
        self.answerer = answerer or TableAnswerer(self.table)
        self._attributes = {attribute.key: attribute for attribute in self.table.attributes}
        self._best_play: BestPlay | None = None
        if self.config.information_reward:
            most = 1.0 + self.config.information_reward * math.log2(len(self.table.secrets))
            self.reward_range = (0.0, most)

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> State:
        problem = self.check_task(task_data)
        if problem is not None:
            raise ValueError(problem)
        solution = task_data["solution"]
        hints = self.hints(solution, task_data.get("seed", 0))
        possible = list(range(len(self.table.secrets)))
        for key, value in hints:
            possible = self._still_possible(possible, key, value)
        return State(
            solution=self.table.canonical(solution) or solution,
            hints=hints,
            possible=possible,
            history=[],
            last_answer="",
            done=False,
        )

    def _format_prompt(self, state: State, step: int) -> str:
        turns = self.config.max_steps_per_episode - step
        if step > 0:
            if self.config.answer_style == "echo":
                return state["last_answer"]
            return f"{state['last_answer']} Turns left: {turns}."
        lines = [self._echo(key, value) for key, value in state["hints"]]
        explained = self.config.explain_actions
        if self.config.answer_style == "plain":
            rules = _RULES.format(theme=self.theme, turns=turns)
            lines = [rules, *(f"Hint: {hint}" for hint in lines)]
        elif explained:
            lines = [_SHORT_RULES.format(theme=self.theme), *lines]
        if not explained:
            return "\n".join(lines) or "Go."
        return with_form("\n".join(lines), _FORM, self.example_action(state))

    def _step_episode(
        self, session_id: str, state: State, action: str
    ) -> tuple[State, float, bool, dict[str, Any]]:
        said = spoken(action)
        guesses = _GUESS.findall(said)
        if not said or len(said) > MAX_ACTION_CHARACTERS or len(guesses) > 1:
            return self._malformed(state)
        if guesses and not guesses[0].strip():
            return self._malformed(state)
        if guesses:
            return self._guess(state, guesses[0])
        return self._question(state, said)

    def _malformed(self, state: State) -> tuple[State, float, bool, dict[str, Any]]:
        info = {"malformed": True, "win": False, "metrics": {"unparsed": 0.0}}
        return {**state, "last_answer": _MALFORMED}, 0.0, False, info

    def _guess(self, state: State, guess: str) -> tuple[State, float, bool, dict[str, Any]]:
        win = self.is_right(guess, state["solution"])
        info = {
            "win": win,
            "stop_reason": "win" if win else "wrong_guess",
            "metrics": {"unparsed": 0.0},
        }
        after: State = {**state, "done": True, "last_answer": "Right." if win else "Wrong."}
        return after, float(win), True, info

    def _question(self, state: State, question: str) -> tuple[State, float, bool, dict[str, Any]]:
        answer = self.answerer.answer(state["solution"], question, state["history"])
        history = [*state["history"], (question, answer.text)]
        said = f"{answer.text}."
        if self.config.answer_style == "echo" and answer.attribute in self._attributes:
            said = self._echo(answer.attribute, answer.text)
        possible = self._still_possible(state["possible"], answer.attribute, answer.value)
        info = {
            "win": False,
            "answer": answer.text,
            "attribute": answer.attribute,
            "metrics": {"unparsed": float(not answer.parsed)},
            "anchor": repr((state["hints"], sorted(set(history)))),
        }
        gained = _information(state["possible"], possible)
        after: State = {**state, "history": history, "last_answer": said, "possible": possible}
        return after, self.config.information_reward * gained, False, info

    def _still_possible(
        self, possible: list[int], attribute: str | None, answer: bool | None
    ) -> list[int]:
        """Numbers of the secrets in `possible` for which the table gives this answer."""
        if attribute is None or attribute not in self.table.attribute_index:
            return possible
        wanted = -1 if answer is None else int(answer)
        column = self.table.values.T[self.table.attribute_index[attribute]].tolist()
        return [number for number in possible if column[number] == wanted]

    def _echo(self, key: str, answer: bool | str) -> str:
        """An answer that repeats the attribute: "Yes, electric." or "No, not electric."."""
        phrase = self._attributes[key].phrase
        if answer in (True, "Yes"):
            return f"Yes, {phrase}."
        return f"No, not {phrase}." if answer in (False, "No") else "I don't know."

    def is_right(self, guess: str, solution: str) -> bool:
        """Whether a guess names the solution: equal after normalization, or a declared synonym."""
        return matches(guess, solution, self.table.synonyms.get(solution, ()))

    # -- tasks ----------------------------------------------------------------------------------

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        """A task has a `solution` and optionally a `seed`."""
        solution, seed = task_data.get("solution"), task_data.get("seed", 0)
        if not isinstance(solution, str) or not solution.strip():
            return f"task_data needs a 'solution' (a word), got {short_repr(task_data)}"
        if not isinstance(seed, int):
            return f"task_data['seed'] must be an int, got {short_repr(seed)}"
        return None

    @property
    def needs(self) -> str | None:
        """An answerer other than the table, if there is one."""
        answers = isinstance(self.answerer, TableAnswerer) and self.answerer.table is self.table
        return None if answers else "an answerer of its own"

    def example_action(self, state: State) -> str:
        """The question for the table's first attribute that no hint tells."""
        told = {key for key, _ in state["hints"]}
        asked = (attribute for attribute in self.table.attributes if attribute.key not in told)
        return next(asked, self.table.attributes[0]).question

    @property
    def theme(self) -> str:
        """The category of secrets that the prompt names."""
        return "something"

    def hints(self, solution: str, seed: int) -> list[tuple[str, bool]]:
        """The opening hints of a task: attributes with known values, drawn from the seed."""
        secret = self.table.canonical(solution)
        if secret is None or not self.config.hints:
            return []
        known = [
            (attribute.key, bool(value))
            for attribute, value in zip(
                self.table.attributes, self.table.row(secret).tolist(), strict=True
            )
            if value >= 0
        ]
        rng = random.Random(f"{seed}")
        return sorted(rng.sample(known, min(self.config.hints, len(known))))

    def get_train_dataset(self) -> Any:
        """Training tasks, secrets interleaved."""
        return task_dataset(self, self._tasks()[0])

    def get_eval_dataset(self) -> Any:
        """Evaluation tasks: other secrets, or with `split="hints"` other hints."""
        return task_dataset(self, self._tasks()[1])

    def _tasks(self) -> tuple[list[Task], list[Task]]:
        return split_tasks(
            self.table.secrets,
            self.hints,
            by=self.config.split,
            train_per_secret=self.config.train_tasks_per_secret,
            eval_per_secret=self.config.eval_tasks_per_secret,
        )

    # -- the reference player -------------------------------------------------------------------

    @property
    def best_play(self) -> BestPlay:
        """The reference player over this environment's table."""
        self._best_play = self._best_play or BestPlay(self.table)
        return self._best_play

    def optimal_agent(self) -> Agent:
        """The reference player."""
        return OptimalAgent(self)

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """A teacher that plays each game as a different careless player."""
        return RandomTeacher(self, seed)

    def model_figures(self, model: Any, tokenizer: Any) -> Mapping[str, float]:
        """How well the model understands the answers; see `guess_consistency.guess_figures`. None
        if a language model answers."""
        if isinstance(self.answerer, LLMAnswerer):
            return {}
        from agentsgym.envs.twenty_questions.guess_consistency import guess_figures

        return guess_figures(model, tokenizer, self)

    def attribute_for(self, phrase_or_question: str) -> Attribute | None:
        """The attribute with this phrase or canonical question."""
        for attribute in self.table.attributes:
            if phrase_or_question in (attribute.phrase, attribute.question):
                return attribute
        return None

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """The reward of the reference player on this task: 1.0 if it wins, and what
        `information_reward` pays for its questions. None if a language model answers, which would
        have to be asked."""
        if isinstance(self.answerer, LLMAnswerer):
            return None
        win, _, bits = self._reference_game(task_data)
        return float(win) + self.config.information_reward * bits

    def reference_play(self, task_data: Mapping[str, Any]) -> tuple[bool, int]:
        """Whether the reference player wins this task, and its number of actions."""
        win, steps, _ = self._reference_game(task_data)
        return win, steps

    def _reference_game(self, task_data: Mapping[str, Any]) -> tuple[bool, int, float]:
        """Whether it wins, its number of actions, and the information of its questions in bits."""
        solution = task_data["solution"]
        state = self._initialize_episode("", dict(task_data))
        known: list[tuple[str, bool | None]] = [*state["hints"]]
        possible, bits = state["possible"], 0.0
        limit = self.config.max_steps_per_episode
        for step in range(limit):
            action = self.best_play.next_action(known, frozenset(), limit - step)
            if action.startswith("["):
                return self.is_right(action[1:-1], solution), step + 1, bits
            attribute = self.attribute_for(action)
            answer = self.answerer.answer(solution, action, [])
            assert attribute is not None
            known.append((attribute.key, answer.value))
            left = self._still_possible(possible, answer.attribute, answer.value)
            bits, possible = bits + _information(possible, left), left
        return False, limit, bits


def _information(before: Sequence[int], after: Sequence[int]) -> float:
    """Bits gained where `after` are the secrets left of `before`; 0.0 if none is."""
    return math.log2(len(before) / len(after)) if after else 0.0
