"""Twenty Questions: implemented here, offline, exact."""

import hashlib
import itertools
import math
import random
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from agentsgym.envs.action_text import spoken
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import read_seed
from agentsgym.envs.known_game import GameState, KnownGame, lowest, members
from agentsgym.envs.settings import RESERVED, EnvSettings, TasksPerSolution
from agentsgym.envs.twenty_questions.answerer import (
    Answerer,
    LLMAnswerer,
    TableAnswerer,
    endpoint_answerer,
)
from agentsgym.envs.twenty_questions.knowledge import (
    BestPlay,
    KnowledgeTable,
    best_play,
    load_table,
)
from agentsgym.envs.twenty_questions.words import matches
from agentsgym.generation.settings import ChatEndpoint
from agentsgym.types import Agent
from agentsgym.types.names import ConfigError
from agentsgym.types.text import short_repr

EVAL_SHARE = 5
"""One out of this many secrets, or hint sets, is held out for evaluation."""
MAX_ACTION_CHARACTERS = 2000
_GUESS = re.compile(r"\[([^\[\]]*)\]")
_RULES = (
    "Let's play Twenty Questions. I am thinking of something. Ask me questions that can be "
    "answered with Yes or No, one at a time. When you know what it is, put your guess into "
    "square brackets, like [word]. A guess ends the game. You have {turns} turns, the guess "
    "included."
)
_SHORT_RULES = (
    "I am thinking of something. Ask yes/no questions. When you know it, guess it, like [word]."
)
_MALFORMED = "That was neither one question nor one guess in square brackets, so nothing happened."


Hints = list[tuple[str, bool]]
Tasks = list[dict[str, Any]]


class QuestionsState(GameState):
    """An episode: the secret, the opening hints, and the conversation.

    `possible` are the secrets of the table that agree with all answers so far (bit i: secret i),
    `carried` those that agree with the answers of earlier episodes, if the agent may know them.
    """

    solution: str
    hints: Hints
    history: list[tuple[str, str]]
    possible: int
    carried: int


class TwentyQuestionsEnv(KnownGame):
    """Guess a secret word by asking yes/no questions; a knowledge table answers.

    `task_data` is `{"solution": str, "seed": int}`; the opening hints are drawn from the seed. A
    win earns 1.0, everything else 0.0 (except for `information_reward`). A secret that is not in
    the table is allowed; its answers are "I don't know". With `split="hints"` a task is a secret
    with its hints: every secret is in training and evaluation, but no (secret, hints) pair is in
    both.

    A subclass whose questions something else answers overrides `make_answerer`.
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
        answerer: Annotated[ChatEndpoint | None, RESERVED] = Field(
            None, description="a chat endpoint that answers: urls, served_model, key_env, capacity"
        )

    config: Settings
    reward_range = (0.0, 1.0)
    form = "Answer with one question only."
    # The reward is said after an episode, as in most environments.
    _format_result = MultistepEnv._format_result
    _format_reflection = MultistepEnv._format_reflection
    _format_memory = MultistepEnv._format_memory

    def _set_up(self) -> None:
        self.hardcore: bool = self.config.hardcore
        if self.hardcore and "table" in self.env_config:
            raise ConfigError(
                f"{self.name}: env_config.hardcore has its own table, so it does not allow "
                f"'table', got {self.config.table!r}"
            )
        self.table: KnowledgeTable = load_table("hardcore" if self.hardcore else self.config.table)
        self.answerer = self.make_answerer()
        self.blocking = isinstance(self.answerer, LLMAnswerer)  # type: ignore[misc]
        self._phrases = {attribute.key: attribute.phrase for attribute in self.table.attributes}
        if self.config.information_reward:
            most = 1.0 + self.config.information_reward * math.log2(len(self.table.secrets))
            self.reward_range = (0.0, most)

    def make_answerer(self) -> Answerer:
        """What answers the questions: the endpoint of the settings, or the table. Raises
        ConfigError, MissingKey."""
        endpoint = self.config.answerer
        if endpoint is None:
            return TableAnswerer(self.table)
        if self.config.information_reward:
            raise ConfigError(
                f"{self.name}: env_config.information_reward counts the table's answers; set it to "
                "0 or leave env_config.answerer out"
            )
        return endpoint_answerer(endpoint)

    # -- an episode -----------------------------------------------------------------------------

    def start(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        solution = task_data.get("solution")
        if not isinstance(solution, str) or not solution.strip():
            raise ValueError(f"task_data needs a 'solution' (a word), got {short_repr(task_data)}")
        hints = self.hints(solution, read_seed(task_data, 0))
        possible = self.best_play.everything
        for key, value in hints:
            possible = self.best_play.agreeing(possible, key, value)
        return {
            "solution": self.table.canonical(solution) or solution,
            "hints": hints,
            "history": [],
            "possible": possible,
            "carried": self.best_play.everything,
        }

    def _carry_over(self, state: QuestionsState, last: QuestionsState) -> None:
        state["carried"] = _known(last)

    def _format_prompt(self, state: QuestionsState, step: int) -> str:
        prompt, turns = super()._format_prompt(state, step), self.config.max_steps_per_episode
        counted = step > 0 and self.config.answer_style == "plain"
        return f"{prompt} Turns left: {turns - step}." if counted else prompt

    def first_prompt(self, state: QuestionsState) -> str:
        """The rules and the hints; with echoes, a model that needs no rules gets the hints."""
        lines = [self._echo(key, value) for key, value in state["hints"]]
        if self.config.answer_style == "plain":
            rules = _RULES.format(turns=self.config.max_steps_per_episode)
            lines = [rules, *(f"Hint: {hint}" for hint in lines)]
        elif self.config.explain_actions:
            lines = [_SHORT_RULES, *lines]
        return "\n".join(lines) or "Go."

    def _step_episode(
        self, session_id: str, state: QuestionsState, action: str
    ) -> tuple[QuestionsState, float, bool, dict[str, Any]]:
        text = spoken(action)
        guesses = _GUESS.findall(text)
        state = {**state, "steps": state["steps"] + 1}
        if not text or len(text) > MAX_ACTION_CHARACTERS or len(guesses) > 1:
            return self._malformed(state)
        if guesses and not guesses[0].strip():
            return self._malformed(state)
        if guesses:
            return self._guess(state, guesses[0])
        return self._question(state, text)

    def _malformed(
        self, state: QuestionsState
    ) -> tuple[QuestionsState, float, bool, dict[str, Any]]:
        info = {"malformed": True, "win": False, "metrics": {"unparsed": 0.0}}
        return {**state, "reply": _MALFORMED}, 0.0, False, info

    def _guess(
        self, state: QuestionsState, guess: str
    ) -> tuple[QuestionsState, float, bool, dict[str, Any]]:
        solution = state["solution"]
        win = matches(guess, solution, self.table.synonyms.get(solution, ()))
        info = {
            "win": win,
            "stop_reason": "win" if win else "wrong_guess",
            "metrics": {"unparsed": 0.0},
        }
        return {**state, "reply": "Right." if win else "Wrong."}, float(win), True, info

    def _question(
        self, state: QuestionsState, question: str
    ) -> tuple[QuestionsState, float, bool, dict[str, Any]]:
        answer = self.answerer.answer(state["solution"], question, state["history"])
        history = [*state["history"], (question, answer.text)]
        reply = f"{answer.text}."
        if self.config.answer_style == "echo" and answer.attribute in self._phrases:
            reply = self._echo(answer.attribute, answer.text)
        agreeing = self.best_play.agreeing(state["possible"], answer.attribute, answer.value)
        # Answers that contradict each other, of an answerer of one's own, tell nothing.
        possible = agreeing or state["possible"]
        info = {
            "win": False,
            "answer": answer.text,
            "attribute": answer.attribute,
            "metrics": {"unparsed": float(not answer.parsed)},
            "anchor": repr((state["hints"], sorted(set(history)))),
        }
        bits = math.log2(state["possible"].bit_count() / possible.bit_count())
        after: QuestionsState = {**state, "history": history, "reply": reply, "possible": possible}
        return after, self.config.information_reward * bits, False, info

    def _echo(self, key: str, answer: bool | str) -> str:
        """An answer that repeats the attribute: "Yes, electric." or "No, not electric."."""
        phrase = self._phrases[key]
        if answer in (True, "Yes"):
            return f"Yes, {phrase}."
        return f"No, not {phrase}." if answer in (False, "No") else "I don't know."

    # -- tasks ----------------------------------------------------------------------------------

    def example_action(self, state: QuestionsState) -> str:
        """The question for the table's first attribute that no hint tells."""
        hinted = {key for key, _ in state["hints"]}
        others = (attribute for attribute in self.table.attributes if attribute.key not in hinted)
        return next(others, self.table.attributes[0]).question

    def hints(self, solution: str, seed: int) -> Hints:
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

    def _tasks(self, held_out: bool) -> Tasks:
        counts = (self.config.train_tasks_per_secret, self.config.eval_tasks_per_secret)
        if self.config.split == "hints":
            return self._split_by_hints(*counts)[held_out]
        return [
            {"solution": secret, "seed": seed}
            for seed in range(counts[held_out])
            for secret in self.table.secrets
            if _held_out(secret) == held_out
        ]

    def _split_by_hints(self, *counts: int) -> tuple[Tasks, Tasks]:
        """Tasks with different hints, secrets interleaved. A secret with fewer different hint sets
        than requested gets fewer tasks."""
        turns: list[list[Tasks]] = [[[] for _ in range(n)] for n in counts]
        for secret in self.table.secrets:
            seen, count = set(), [0, 0]
            for seed in range(20 * sum(counts)):
                hints = self.hints(secret, seed)
                if tuple(hints) in seen:
                    continue
                seen.add(tuple(hints))
                side = _held_out((secret, hints))
                if count[side] < counts[side]:
                    turns[side][count[side]].append({"solution": secret, "seed": seed})
                    count[side] += 1
                if count == [*counts]:
                    break
        train, held_out = (list(itertools.chain(*side)) for side in turns)
        return train, held_out

    # -- the players ----------------------------------------------------------------------------

    @property
    def best_play(self) -> BestPlay:
        return best_play(self.table)

    def best_action(self, state: QuestionsState, kind: str = "best") -> str:
        """The most informative question; the first possible secret if no question separates them,
        or as the last action."""
        last = state["steps"] + 1 >= self.config.max_steps_per_episode
        attribute = None if last else self.best_play.question(_known(state))
        return attribute.question if attribute else self._written_guess(lowest(_known(state)))

    def _written_guess(self, number: int) -> str:
        return f"[{self.table.secrets[number]}]"

    def notes(self, state: QuestionsState) -> str:
        hints = (self._echo(key, value) for key, value in state["hints"])
        answers = (f"{question} {answer}." for question, answer in state["history"])
        return "\n".join([*hints, *answers])

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """See `KnownGame`. None if a language model answers, which would have to be asked."""
        if isinstance(self.answerer, LLMAnswerer):
            return None
        return super().reference_score(task_data)

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """A different careless player in each game.

        It draws its questions from the table's attributes with probabilities proportional to
        exp(skill x information gain in bits), so skill 0 asks blindly and may repeat questions. The
        skill is uniform in [0, 6]. It guesses at a random step, uniform over the episode's steps,
        any of the secrets that agree with all answers. A model that imitates it learns what the
        answers mean and that questions differ; it still has to find out how to ask and when to
        stop.
        """
        return self.random_agent(self._draw, f"random-teacher-{seed}")

    def _draw(self, state: QuestionsState, rng: random.Random, memory: dict[str, Any]) -> str:
        if not memory:
            memory["guess_at"] = rng.randint(1, self.config.max_steps_per_episode)
            memory["skill"] = rng.uniform(0.0, 6.0)
        if state["steps"] + 1 >= memory["guess_at"]:
            return self._written_guess(rng.choice(members(_known(state))))
        weights = np.exp(memory["skill"] * self.best_play.gains(_known(state))).tolist()
        return rng.choices(self.table.attributes, weights)[0].question


def _known(state: QuestionsState) -> int:
    return state["possible"] & state["carried"] or state["possible"]


def _held_out(key: object) -> bool:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % EVAL_SHARE == 0
