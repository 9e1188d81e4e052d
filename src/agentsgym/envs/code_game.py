"""Games in which a hidden code is found by guesses that get feedback.

Sets of codes are bit masks (bit i: `CodeSpace.codes[i]`). A task is a code and its opening hints:
other codes with the feedback that they would get. Where there are few codes, holding some out would
only teach a model never to guess them (a code that is never rewarded is always penalized). So every
code is in training and in evaluation, but no (code, hints) pair is in both; only without hints some
codes are held out.
"""

import math
import random
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from agentsgym.envs.action_text import read_action
from agentsgym.envs.dataset import read_seed
from agentsgym.envs.known_game import GameState, KnownGame, bit_mask, members
from agentsgym.envs.settings import EnvSettings, TasksPerSolution
from agentsgym.types import Agent, session_seed

Code = TypeVar("Code", bound=Hashable)
Answer = TypeVar("Answer", bound=Hashable)


class CodeSpace(Generic[Code, Answer]):
    """All codes that may be hidden; each may be guessed. `label` seeds their hints and split."""

    label: str
    win: Answer
    """The feedback to the right guess."""

    def __init__(self, codes: Sequence[Code]) -> None:
        self.codes = tuple(codes)
        self.index = {code: i for i, code in enumerate(self.codes)}
        self.everything = (1 << len(self.codes)) - 1
        self._parts: dict[int, dict[Answer, int]] = {}

    @staticmethod
    @abstractmethod
    def feedback(guess: Code, code: Code) -> Answer:
        """The feedback to a guess."""

    @abstractmethod
    def keys(self, guess: int) -> npt.NDArray[np.integer[Any]]:
        """The number of the feedback that each code would give to guess number `guess`."""

    @abstractmethod
    def answer(self, key: int) -> Answer:
        """The feedback of a number."""

    def __len__(self) -> int:
        return len(self.codes)

    def parts(self, guess: int) -> dict[Answer, int]:
        """For each feedback, the codes that would give it to guess number `guess`."""
        if guess not in self._parts:
            keys = self.keys(guess)
            self._parts[guess] = {
                self.answer(key): bit_mask(keys == key) for key in np.unique(keys).tolist()
            }
        return self._parts[guess]

    def split(self, candidates: int, guess: int) -> list[tuple[Answer, int]]:
        """The non-empty parts of `candidates` after a guess, by feedback."""
        parts = ((answer, candidates & part) for answer, part in self.parts(guess).items())
        return [(answer, part) for answer, part in parts if part]

    def narrow(self, candidates: int, guess: Code, answer: Answer) -> int:
        """The candidates that would give this feedback to `guess`."""
        return candidates & self.parts(self.index[guess]).get(answer, 0)


EVAL_SHARE = 5
"""One out of this many codes, or hint sets of a code, is held out for evaluation."""

Numbered = tuple[int, int]
"""(index of the code, seed of its hints)."""


def draw_hints(
    space: CodeSpace[Code, Answer], solution: int, seed: int, count: int
) -> tuple[Code, ...]:
    """`count` different codes other than the solution, in the order of the space."""
    others = [i for i in range(len(space)) if i != solution]
    rng = random.Random(f"{space.label}-{solution}-{seed}")
    return tuple(space.codes[i] for i in sorted(rng.sample(others, min(count, len(others)))))


def split_by_codes(space: CodeSpace[Any, Any]) -> tuple[list[Numbered], list[Numbered]]:
    """A fifth of the codes is for evaluation, the others for training."""
    shuffled = sorted(range(len(space)), key=lambda i: session_seed(f"{space.label}-split", i))
    held_out = sorted(shuffled[: max(1, len(space) // EVAL_SHARE)])
    train = sorted(set(shuffled) - set(held_out))
    return [(code, 0) for code in train], [(code, 0) for code in held_out]


def split_by_hints(
    space: CodeSpace[Any, Any], hints: int, train_per_code: int, eval_per_code: int
) -> tuple[list[Numbered], list[Numbered]]:
    """Of each code's different hint sets, every fifth is for evaluation, the others for training.

    A code with fewer sets than requested gets fewer tasks. Codes are interleaved.
    """
    train: list[tuple[int, Numbered]] = []
    held_out: list[tuple[int, Numbered]] = []
    for code in range(len(space)):
        seeds = _distinct_seeds(space, code, hints, train_per_code, eval_per_code)
        own = [seed for number, seed in enumerate(seeds) if number % EVAL_SHARE != 1]
        train += [(turn, (code, seed)) for turn, seed in enumerate(own[:train_per_code])]
        held_out += [
            (turn, (code, seed)) for turn, seed in enumerate(seeds[1::EVAL_SHARE][:eval_per_code])
        ]
    return [task for _, task in sorted(train)], [task for _, task in sorted(held_out)]


def _distinct_seeds(
    space: CodeSpace[Any, Any], code: int, hints: int, train_count: int, eval_count: int
) -> list[int]:
    """Seeds with different hint sets, as many as the split needs or as can be found."""
    count = max(EVAL_SHARE * eval_count, -(-train_count * EVAL_SHARE // (EVAL_SHARE - 1)) + 1)
    seen: dict[tuple[Any, ...], int] = {}
    for seed in range(20 * count):
        seen.setdefault(draw_hints(space, code, seed, hints), seed)
        if len(seen) == count:
            break
    return list(seen.values())


# -- the game --------------------------------------------------------------------------------------


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


class CodeGame(KnownGame):
    """A game in which each guess of a hidden code gets feedback, and the right one earns 1.0 and
    ends the episode. In a trial the code and the hints stay the same.

    `task_data` is `{"solution": str, "seed": int}`; the opening hints are drawn from the seed.
    A subclass calls `play_in` when it is set up, and reads and says codes. Its `best_play` has a
    method `choose(candidates, episode, left)`, the index of the guess if these codes are still
    possible, with `left` guesses left in the episode, including this one.
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
    def names_code(self, text: str) -> bool:
        """Whether a text names a code, or a part of one."""

    @abstractmethod
    def say_code(self, code: Any) -> str:
        """A code as an action."""

    @abstractmethod
    def say_answer(self, answer: Any) -> str:
        """Feedback in words."""

    # -- an episode -----------------------------------------------------------------------------

    def start(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        text, seed = task_data.get("solution"), read_seed(task_data, 0)
        code = self.read_code(text) if isinstance(text, str) else None
        if code is None:
            raise ValueError(
                f"task_data needs a 'solution' {self.solution_form}, got {task_data!r}"
            )
        drawn = draw_hints(self.space, self.space.index[code], seed, self.config.hints)
        hints = tuple((hint, self.space.feedback(hint, code)) for hint in drawn)
        possible = self.space.everything
        for hint, answer in hints:
            possible = self.space.narrow(possible, hint, answer)
        return {"solution": code, "hints": hints, "clues": hints, "possible": possible}

    def _carry_over(self, state: CodeState, last: CodeState) -> None:
        state["clues"], state["possible"] = last["clues"], last["possible"]

    def first_prompt(self, state: CodeState) -> str:
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
        guess = read_action(action, self.read_code, self.names_code)
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
        return [self.say_code(code) for code in self.space.codes]

    def best_action(self, state: CodeState, kind: str = "best") -> str:
        left = self.config.max_steps_per_episode - state["steps"]
        guess = self.best_play.choose(state["possible"], self.episode_of(state), left)
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
