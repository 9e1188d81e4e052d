"""A base for games in which a hidden code is found by guesses that get feedback."""

import math
import random
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from pydantic import Field

from agentsgym.envs.code_space import CodeSpace, draw_hints, split_by_codes, split_by_hints
from agentsgym.envs.dataset import read_seed
from agentsgym.envs.known_game import GameState, KnownGame, members
from agentsgym.envs.settings import EnvSettings, TasksPerSolution
from agentsgym.types import Agent

Clues = tuple[tuple[Any, Any], ...]
"""Codes with the feedback that they received."""


class CodeState(GameState):
    """An episode: the task, and the feedback so far.

    `clues` holds the hints, this episode's guesses and, if the agent may know them (`carry`), those
    of earlier episodes, all with feedback; `possible` is the set of codes that agree with it (bit
    i: code i).
    """

    solution: Any
    hints: Clues
    clues: Clues
    possible: int


class CodePlayer(Protocol):
    """A player of such a game."""

    def choose(self, candidates: int, episode: int, left: int) -> int:
        """Index of the guess if these codes are still possible, with `left` guesses left in the
        episode, including this one."""


class CodeGame(KnownGame):
    """A game in which each guess of a hidden code gets feedback, and the right one earns 1.0 and
    ends the episode. In a trial the code and the hints stay the same.

    `task_data` is `{"solution": str, "seed": int}`; the opening hints are drawn from the seed.
    A subclass has its `space` and, as `best_play`, a `CodePlayer`; it reads and says codes.
    """

    class Settings(EnvSettings):
        """The settings of a game with a hidden code."""

        hints: int = Field(1, ge=0, le=1296, description="opening hints in the first prompt")
        train_tasks_per_code: TasksPerSolution = Field(12, description="training tasks per code")
        eval_tasks_per_code: TasksPerSolution = Field(3, description="evaluation tasks per code")
        information_reward: float = Field(
            0.0,
            ge=0,
            description="reward of a guess per bit, log2 of (codes possible before / after the "
            "feedback)",
        )

    config: Settings
    reward_range = (0.0, 1.0)
    what: ClassVar[str] = "code"
    """What is hidden, in a word."""
    refusal: ClassVar[str]
    """The answer to an action that is no guess."""
    solution_form: str
    """Which solutions a task may have, after "a 'solution'"."""

    def play_in(self, space: CodeSpace[Any, Any]) -> None:
        """Play with these codes."""
        self.space = space
        if self.config.information_reward:
            most = 1.0 + self.config.information_reward * math.log2(len(space))
            self.reward_range = (0.0, most)

    @abstractmethod
    def rules(self, state: CodeState) -> str:
        """The first lines of an episode's first prompt."""

    @abstractmethod
    def read_code(self, text: str) -> Any:
        """The code that is the whole text; None without one."""

    @abstractmethod
    def read_guess(self, action: str) -> Any:
        """The one code in an agent's text; None without one."""

    @abstractmethod
    def say_code(self, code: Any) -> str:
        """A code as an action."""

    @abstractmethod
    def say_answer(self, answer: Any) -> str:
        """Feedback in words."""

    # -- an episode -----------------------------------------------------------------------------

    def start(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        """The code, and the hints with what they tell."""
        solution, hints = self.read_task(task_data)
        possible = self.space.everything
        for hint, answer in hints:
            possible = self.space.narrow(possible, hint, answer)
        return {"solution": solution, "hints": hints, "clues": hints, "possible": possible}

    def _carry_over(self, state: CodeState, last: CodeState) -> None:
        state["clues"], state["possible"] = last["clues"], last["possible"]

    def first_prompt(self, state: CodeState) -> str:
        """The rules, and the hints one per line."""
        round_line = state["trial"].round_line(f"same {self.what}")
        return "\n".join(
            [f"{round_line} {self.rules(state)}".strip(), *self._lines(state["hints"])]
        )

    def _lines(self, clues: Clues) -> list[str]:
        return [f"{self.say_code(code)}: {self.say_answer(answer)}" for code, answer in clues]

    def _format_memory(self, reflection: str) -> str:
        return f"Notes:\n{reflection}"

    def _step_episode(
        self, session_id: str, state: CodeState, action: str
    ) -> tuple[CodeState, float, bool, dict[str, Any]]:
        guess = self.read_guess(action)
        after: CodeState = {**state, "steps": state["steps"] + 1, "reply": self.refusal}
        win, consistent = False, 0.0
        if guess is not None:
            answer = self.space.feedback(guess, state["solution"])
            win = answer == self.space.win
            after["clues"] = (*state["clues"], (guess, answer))
            after["possible"] = self.space.narrow(state["possible"], guess, answer)
            after["reply"] = self.say_answer(answer)
            consistent = float(state["possible"] >> self.space.index[guess] & 1)
        bits = math.log2(state["possible"].bit_count() / after["possible"].bit_count())
        info = {
            "win": win,
            "stop_reason": "win" if win else "guesses_used",
            "anchor": self.anchor(after, sorted(set(after["clues"]))),
            "metrics": {"consistent": consistent, "bits": bits},
            "informing": after["possible"] != state["possible"],
        }
        if guess is None:
            info["malformed"] = True
        done = win or after["steps"] >= self.config.max_steps_per_episode
        return after, float(win) + self.config.information_reward * bits, done, info

    # -- tasks ----------------------------------------------------------------------------------

    def read_task(self, task_data: Mapping[str, Any]) -> tuple[Any, Clues]:
        """(solution, hints with their feedback). Raises ValueError with the task's problem."""
        text, seed = task_data.get("solution"), read_seed(task_data, 0)
        code = self.read_code(text) if isinstance(text, str) else None
        if code is None:
            raise ValueError(
                f"task_data needs a 'solution' {self.solution_form}, got {task_data!r}"
            )
        hints = draw_hints(self.space, self.space.index[code], seed, self.config.hints)
        return code, tuple((hint, self.space.feedback(hint, code)) for hint in hints)

    def _tasks(self, held_out: bool) -> list[dict[str, Any]]:
        config, space = self.config, self.space
        counts = (config.train_tasks_per_code, config.eval_tasks_per_code)
        hints = config.hints
        sides = split_by_hints(space, hints, *counts) if hints else split_by_codes(space)
        return [
            {"solution": self.say_code(space.codes[code]), "seed": seed}
            for code, seed in sides[held_out]
        ]

    # -- players --------------------------------------------------------------------------------

    def admissible_actions(self, state: CodeState) -> list[str]:
        """All codes."""
        return [self.say_code(code) for code in self.space.codes]

    def best_action(self, state: CodeState, kind: str = "best") -> str:
        """The guess of `best_play`. Raises ValueError if the trial is too large for it."""
        left = self.config.max_steps_per_episode - state["steps"]
        player: CodePlayer = self.best_play
        guess = player.choose(state["possible"], self.episode_of(state), left)
        return self.say_code(self.space.codes[guess])

    def notes(self, state: CodeState) -> str:
        """The guesses with their feedback, one per line, in the form of the opening hints."""
        return "\n".join(self._lines(tuple(dict(state["clues"]).items())))

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """The agent that half of the time guesses a code that agrees with all feedback, else any
        code."""
        return self.random_agent(self._draw, seed)

    def _draw(self, state: CodeState, rng: random.Random, memory: dict[str, Any]) -> str:
        among = state["possible"] if rng.random() < 0.5 else self.space.everything
        return self.say_code(self.space.codes[rng.choice(members(among))])
