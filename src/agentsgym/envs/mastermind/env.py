"""Mastermind in words."""

import math
import random
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from agentsgym.envs.dataset import read_seed
from agentsgym.envs.known_game import GameState, KnownGame, episode_weights, members
from agentsgym.envs.mastermind.best_play import ExactPlayer
from agentsgym.envs.mastermind.codes import (
    COLORS,
    Clues,
    Code,
    CodeSpace,
    draw_hints,
    feedback,
    read_code,
    read_guess,
    say_code,
    say_feedback,
    split_by_codes,
    split_by_hints,
)
from agentsgym.envs.settings import EnvSettings, TasksPerSolution
from agentsgym.types import Agent
from agentsgym.types.names import ConfigError

MAX_CODES = 1296
NO_GUESS = "That is no code."


class CodeState(GameState):
    """An episode: the task, and the feedback so far.

    `clues` holds the hints, this episode's guesses and, if the agent may know them (`carry`), those
    of earlier episodes, all with feedback; `possible` is the set of codes that agree with it (bit
    i: code i).
    """

    solution: Code
    hints: Clues
    clues: Clues
    possible: int


class MastermindEnv(KnownGame):
    """Find a code of colored pegs. Each guess gets the number of right and of misplaced pegs.

    `task_data` is `{"solution": "red blue", "seed": int}`; the opening hints are drawn from the
    seed. The right guess earns 1.0 and ends the episode. In a trial the code and the hints stay the
    same.
    """

    class Settings(EnvSettings):
        """The settings of Mastermind."""

        max_steps_per_episode: int = Field(3, description="guesses per episode")
        colors: int = Field(4, ge=2, le=len(COLORS), description="number of colors")
        length: int = Field(2, ge=1, le=10, description="pegs of a code")
        hints: int = Field(1, ge=0, le=MAX_CODES, description="opening hints in the first prompt")
        train_tasks_per_code: TasksPerSolution = Field(12, description="training tasks per code")
        eval_tasks_per_code: TasksPerSolution = Field(3, description="evaluation tasks per code")

    config: Settings
    reward_range = (0.0, 1.0)
    reflect = "Note what you know about the code."

    def _set_up(self) -> None:
        config = self.config
        if config.colors**config.length > MAX_CODES:
            raise ConfigError(
                f"{self.name}: env_config.length gives more than {MAX_CODES} codes, got "
                f"{config.length}"
            )
        self.color_names = COLORS[: config.colors]
        self.space = CodeSpace(config.colors, config.length)
        # It does not say "code": small models then write a program.
        self.form = f"Answer with {config.length} color{'s' if config.length > 1 else ''} only."

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
        names, explained = self.color_names, self.config.explain_actions
        rules = f"Find the code: {self.config.length} of {', '.join(names)}, repeats allowed. "
        rules += "" if explained else f'Guess like "{self.example_action(state)}". '
        rules += f"{self.config.max_steps_per_episode} guesses."
        hints = [f"{say_code(code, names)}: {say_feedback(f)}" for code, f in state["hints"]]
        lines = [f"{state['trial'].round_line('same code')} {rules}".strip(), *hints]
        return "\n".join(lines)

    def _format_memory(self, reflection: str) -> str:
        return f"Notes:\n{reflection}"

    def _step_episode(
        self, session_id: str, state: CodeState, action: str
    ) -> tuple[CodeState, float, bool, dict[str, Any]]:
        guess = read_guess(action, self.color_names, self.config.length)
        after: CodeState = {**state, "steps": state["steps"] + 1, "reply": NO_GUESS}
        win, consistent = False, 0.0
        if guess is not None:
            answer = feedback(guess, state["solution"])
            win = answer == self.space.win
            after["clues"] = (*state["clues"], (guess, answer))
            after["possible"] = self.space.narrow(state["possible"], guess, answer)
            after["reply"] = say_feedback(answer)
            consistent = float(state["possible"] >> self.space.index[guess] & 1)
        bits = math.log2(state["possible"].bit_count() / after["possible"].bit_count())
        info = {
            "win": win,
            "stop_reason": "win" if win else "guesses_used",
            "anchor": self.anchor(after, sorted({(c, tuple(f)) for c, f in after["clues"]})),
            "metrics": {"consistent": consistent, "bits": bits},
            "informing": after["possible"] != state["possible"],
        }
        if guess is None:
            info["malformed"] = True
        done = win or after["steps"] >= self.config.max_steps_per_episode
        return after, float(win), done, info

    # -- tasks ----------------------------------------------------------------------------------

    def read_task(self, task_data: Mapping[str, Any]) -> tuple[Code, Clues]:
        """(solution, hints with their feedback). Raises ValueError with the task's problem."""
        text, seed = task_data.get("solution"), read_seed(task_data, 0)
        length = self.config.length
        code = read_code(text, self.color_names, length) if isinstance(text, str) else None
        if code is None:
            raise ValueError(
                f"task_data needs a 'solution' of {length} words out of "
                f"{', '.join(self.color_names)}, got {task_data!r}"
            )
        hints = draw_hints(self.space, self.space.index[code], seed, self.config.hints)
        return code, tuple((hint, feedback(hint, code)) for hint in hints)

    def _tasks(self, held_out: bool) -> list[dict[str, Any]]:
        config, space = self.config, self.space
        counts = (config.train_tasks_per_code, config.eval_tasks_per_code)
        hints = config.hints
        sides = split_by_hints(space, hints, *counts) if hints else split_by_codes(space)
        return [
            {"solution": say_code(self.space.codes[code], self.color_names), "seed": seed}
            for code, seed in sides[held_out]
        ]

    # -- the best play --------------------------------------------------------------------------

    @cached_property
    def best_play(self) -> ExactPlayer:
        """The optimal player of the configured trial. Raises ValueError above 64 codes."""
        weights = episode_weights(*self.played_as_one)
        return ExactPlayer(self.space, self.config.max_steps_per_episode, weights)

    def admissible_actions(self, state: CodeState) -> list[str]:
        """All codes."""
        return [say_code(code, self.color_names) for code in self.space.codes]

    def example_action(self, state: CodeState) -> str:
        """The first color, then the second one in all other places."""
        return say_code((0, *[1] * (self.config.length - 1)), self.color_names)

    def best_action(self, state: CodeState, kind: str = "best") -> str:
        """The best guess. Raises ValueError above 64 codes."""
        left = self.config.max_steps_per_episode - state["steps"]
        guess = self.best_play.choose(state["possible"], self.episode_of(state), left)
        return say_code(self.space.codes[guess], self.color_names)

    def notes(self, state: CodeState) -> str:
        """The guesses with their feedback, one per line, in the form of the opening hints."""
        answers = dict(state["clues"])
        lines = (f"{say_code(c, self.color_names)}: {say_feedback(f)}" for c, f in answers.items())
        return "\n".join(lines)

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """The agent that half of the time guesses a code that agrees with all feedback, else any
        code."""
        return self.random_agent(self._draw, seed)

    def _draw(self, state: CodeState, rng: random.Random, memory: dict[str, Any]) -> str:
        among = state["possible"] if rng.random() < 0.5 else self.space.everything
        return say_code(self.space.codes[rng.choice(members(among))], self.color_names)
