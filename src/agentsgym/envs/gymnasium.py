"""Gymnasium environments with discrete actions, played as text; `Gymnasium/FrozenLake` and
`Gymnasium/Taxi`."""

import importlib
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from agentsgym.envs.action_text import MAX_CHARACTERS, negates, spoken, with_form
from agentsgym.envs.dataset import SeedTasks, read_seed
from agentsgym.envs.extras import require
from agentsgym.envs.settings import EnvSettings, Tasks
from agentsgym.types import session_seed
from agentsgym.types.foreign import checked_number, checked_truth

EVAL_SHARE = 5
"""One out of this many different tasks is held out for evaluation."""

MOST_ICE = 64
_MAX_FRUITLESS = 2000


@dataclass(slots=True)
class Running:
    """An episode: the raw environment, its last observation, and the number of steps so far."""

    raw: Any
    observation: Any
    steps: int = 0
    malformed: bool = False
    terminated: bool = False
    text: str = ""


class GymnasiumEnv(SeedTasks):
    """A Gymnasium environment whose actions have names and whose observations become text.

    A subclass sets `env_id`, `actions` and `rules` and overrides `describe`; it may override
    `raw_options` (arguments of `gymnasium.make` for a task). `task_data` is `{"seed": int}`, the
    seed of the raw environment's generator. Rewards are Gymnasium's. Tasks that begin with the same
    text are one task.
    """

    env_id: ClassVar[str] = ""
    actions: ClassVar[Mapping[str, int]] = {}
    rules: ClassVar[str] = ""
    wasted_step: ClassVar[float] = 0.0
    """Reward of a step without a valid move, and of each step that remains when an episode is given
    up: if time costs, invalid answers must not avoid that cost."""

    class Settings(EnvSettings):
        """The settings of a Gymnasium environment."""

        train_tasks: Tasks = Field(256, description="maximum number of training tasks")
        eval_tasks: Tasks = Field(64, description="maximum number of evaluation tasks")

    config: Settings

    def _set_up(self) -> None:
        require("gymnasium", "gymnasium")

    # -- what a subclass overrides --------------------------------------------------------------

    def describe(self, raw: Any, observation: Any) -> str:
        """The observation as text; `raw` is the unwrapped Gymnasium environment."""
        return f"Observation: {observation}"

    def raw_options(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of `gymnasium.make` other than the id."""
        return {}

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> Running:
        seed = read_seed(task_data)
        return self._reset(self._make(self.raw_options(task_data)), seed)

    def _make(self, options: Mapping[str, Any]) -> Any:
        gymnasium = importlib.import_module("gymnasium")
        return gymnasium.make(self.env_id, disable_env_checker=True, **options).unwrapped

    def _reset(self, raw: Any, seed: int) -> Running:
        observation, _ = raw.reset(seed=seed)
        return Running(raw, observation, text=self.describe(raw, observation))

    def _format_prompt(self, state: Running, step: int) -> str:
        words = ", ".join(self.actions)
        form = f"Answer with one of: {words}."
        if step == 0 and not self.config.explain_actions:
            return f"{self.rules}\n{form}\n\n{state.text}"
        if step == 0:
            return with_form(
                f"{self.rules}\n\n{state.text}\n", form, self.example_action(state) or ""
            )
        return (
            f"That named no single action. {form}\n\n{state.text}"
            if state.malformed
            else state.text
        )

    def _step_episode(
        self, session_id: str, state: Running, action: str
    ) -> tuple[Running, float, bool, dict[str, Any]]:
        if state.terminated:
            return state, 0.0, True, {}
        state.steps += 1
        word = action_word(action, self.actions)
        state.malformed = word is None
        if word is None:
            anchor = self._anchor(state)
            return state, self.wasted_step, False, {"malformed": True, "anchor": anchor}
        after = state.raw.step(self.actions[word])
        state.observation, reward = after[0], checked_number(after[1], "reward")
        state.terminated = checked_truth(after[2], "terminated")
        state.text = self.describe(state.raw, state.observation)
        info: dict[str, Any] = {"action": word, "anchor": self._anchor(state)}
        if state.terminated:
            info |= {"win": reward > 0, "stop_reason": "win" if reward > 0 else "lost"}
        return state, reward, state.terminated, info

    def _anchor(self, state: Running) -> str:
        return f"{state.observation} after {state.steps}"

    def _calculate_reward(
        self,
        state: Running,
        actions: Sequence[str],
        final_action: str,
        step_rewards: Sequence[float],
    ) -> float:
        """The sum; an episode that was given up also pays for the steps that remained."""
        left = 0 if state.terminated else self.config.max_steps_per_episode - len(actions)
        return sum(step_rewards) + self.wasted_step * left

    def admissible_actions(self, state: Running) -> list[str]:
        return list(self.actions)

    # -- tasks ----------------------------------------------------------------------------------

    def _tasks(self, held_out: bool) -> list[dict[str, int]]:
        """Tasks that differ from each other; a single one if every seed gives the same task."""
        return self._split[held_out]

    @cached_property
    def _split(self) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
        """Seeds of training and evaluation tasks, split by the tasks' first texts."""
        sides: tuple[list[dict[str, int]], ...] = [], []
        sizes = self.config.train_tasks, self.config.eval_tasks
        seen: set[str] = set()
        fruitless = 0
        raw: Any = None
        made_with: dict[str, Any] | None = None
        for seed in itertools.count():
            options = self.raw_options({"seed": seed})
            if options != made_with:  # making one may take longer than a reset
                raw, made_with = self._make(options), options
            text = self._reset(raw, seed).text
            held_out = session_seed("gymnasium", text) % EVAL_SHARE == 0
            fresh = text not in seen and len(sides[held_out]) < sizes[held_out]
            seen.add(text)
            if fresh:
                sides[held_out].append({"seed": seed})
            fruitless = 0 if fresh else fruitless + 1
            if fruitless == _MAX_FRUITLESS or tuple(map(len, sides)) == sizes:
                break
        train, held = sides
        return (train or held, held or train) if len(seen) == 1 else (train, held)


def action_word(action: str, words: Collection[str]) -> str | None:
    """The action word in an agent's text; thoughts before `</think>` are ignored.

    Case and other words do not matter. The result is None (no move) if the text contains none of
    the action words or several, if it says "not" or the like, or if it is longer than 4,000
    characters.
    """
    if len(action) > MAX_CHARACTERS:
        return None
    text = spoken(action)
    spoken_words = set(re.findall(r"[^\W_]+", text.casefold()))
    matches = [word for word in words if word.casefold() in spoken_words]
    return matches[0] if len(matches) == 1 and not negates(text) else None


class GymnasiumFrozenLakeEnv(GymnasiumEnv):
    """Gymnasium's FrozenLake: cross the ice without falling into a hole. The goal pays 1.0.

    Maps are drawn from the seed (`map="random"`, always solvable) or are Gymnasium's fixed ones.
    With `slippery=True` two of three steps go in a wrong direction, as in Gymnasium.
    """

    env_id = "FrozenLake-v1"
    actions: ClassVar[Mapping[str, int]] = {"left": 0, "down": 1, "right": 2, "up": 3}
    rules = (
        "You (A) walk over a frozen lake. Reach the goal (G) and do not step into a hole (H); "
        "F is firm ice."
    )
    reward_range = (0.0, 1.0)

    class Settings(GymnasiumEnv.Settings):
        """The settings of FrozenLake."""

        max_steps_per_episode: int = 30
        map: Literal["random", "4x4", "8x8"] = Field("random", description="the lake")
        size: int = Field(
            4, ge=2, le=MOST_ICE, description=f"side of a random lake, at most {MOST_ICE}"
        )
        slippery: bool = Field(False, description="whether steps may go in a wrong direction")

    config: Settings

    def raw_options(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        """The map, as rows of letters."""
        options: dict[str, Any] = {"is_slippery": self.config.slippery}
        if self.config.map != "random":
            return options | {"map_name": self.config.map}
        module = importlib.import_module("gymnasium.envs.toy_text.frozen_lake")
        rows = module.generate_random_map(size=self.config.size, seed=task_data["seed"])
        return options | {"desc": rows}

    def describe(self, raw: Any, observation: Any) -> str:
        """The map with A where the agent stands."""
        rows = [[cell.decode() for cell in row] for row in raw.desc]
        r, c = divmod(int(observation), raw.ncol)
        rows[r][c] = "A"
        lake = "\n".join(" ".join(row) for row in rows)
        return f"{lake}\nYou are in row {r + 1}, column {c + 1}."


class GymnasiumTaxiEnv(GymnasiumEnv):
    """Gymnasium's Taxi: pick up a passenger and bring them to their destination.

    Each step pays -1, an illegal pickup or dropoff -10, the right dropoff 20. An episode that is
    given up also pays for the steps that remained.
    """

    env_id = "Taxi-v4"
    actions: ClassVar[Mapping[str, int]] = {
        "south": 0,
        "north": 1,
        "east": 2,
        "west": 3,
        "pickup": 4,
        "dropoff": 5,
    }
    rules = (
        "You drive a taxi (T) on a grid; walls are |. Fetch the passenger with pickup and let "
        "them out at their destination with dropoff. Every step costs 1, a wrong pickup or "
        "dropoff 10, the right dropoff earns 20."
    )
    wasted_step = -1.0
    reward_range = (float("-inf"), 20.0)

    class Settings(GymnasiumEnv.Settings):
        """The settings of Taxi."""

        max_steps_per_episode: int = 60

    config: Settings

    def describe(self, raw: Any, observation: Any) -> str:
        """The grid, and the positions of taxi, passenger and destination."""
        row, column, passenger, destination = (int(i) for i in raw.decode(int(observation)))
        grid = [[cell.decode() for cell in line] for line in raw.desc]
        grid[row + 1][2 * column + 1] = "T"
        stands = "RGYB"
        where = "in the taxi" if passenger == 4 else f"at {stands[passenger]}"
        return (
            "\n".join("".join(line) for line in grid)
            + f"\nTaxi in row {row + 1}, column {column + 1}. Passenger {where}. "
            + f"Destination {stands[destination]}."
            + self._stands(raw)
        )

    def _stands(self, raw: Any) -> str:
        places = zip("RGYB", raw.locs, strict=True)
        listed = ", ".join(f"{name} row {r + 1} column {c + 1}" for name, (r, c) in places)
        return f" Stands: {listed}."
