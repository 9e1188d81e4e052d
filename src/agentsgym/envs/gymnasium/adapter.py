"""The adapter: plays a Gymnasium environment with discrete actions as text."""

import copy
import hashlib
import importlib
import itertools
import json
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from pydantic import Field

from agentsgym.envs.action_text import MAX_CHARACTERS, negates, spoken, with_form
from agentsgym.envs.dataset import ListedTasks
from agentsgym.envs.extras import require
from agentsgym.envs.settings import EnvSettings, Tasks
from agentsgym.types import Tokenizer
from agentsgym.types.text import short_repr

EVAL_SHARE = 5
"""One out of this many different tasks is held out for evaluation."""

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


class GymnasiumEnv(ListedTasks):
    """A Gymnasium environment whose actions have names and whose observations become text.

    A subclass sets `env_id`, `actions` and `rules` and overrides `describe`; it may override
    `raw_options` (arguments of `gymnasium.make` for a task) and `identity` (equal for tasks that
    are the same puzzle). `task_data` is `{"seed": int}`, the seed of the raw environment's
    generator. Rewards are Gymnasium's.
    """

    env_id: ClassVar[str] = ""
    actions: ClassVar[Mapping[str, int]] = {}
    rules: ClassVar[str] = ""
    wasted_step: ClassVar[float] = 0.0
    """Reward of a step without a valid move, and of each step that remains when an episode is given
    up: if time costs, invalid answers must not avoid that cost."""

    shares_model: ClassVar[bool] = False
    """Whether sessions may share the attributes of the raw environment that `reset` and `step` do
    not assign, such as the read-only table `P`. Taxi's table takes 700 KB and 3 ms to make."""

    class Settings(EnvSettings):
        """The settings of a Gymnasium environment."""

        train_tasks: Tasks = Field(256, description="maximum number of training tasks")
        eval_tasks: Tasks = Field(64, description="maximum number of evaluation tasks")

    config: Settings

    def __init__(
        self, tokenizer: Tokenizer | None = None, env_config: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(tokenizer, env_config)
        require("gymnasium", "gymnasium")

    # -- what a subclass overrides --------------------------------------------------------------

    def describe(self, raw: Any, observation: Any) -> str:
        """The observation as text; `raw` is the unwrapped Gymnasium environment."""
        return f"Observation: {observation}"

    def raw_options(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of `gymnasium.make` other than the id."""
        return {}

    def identity(self, raw: Any, observation: Any, seed: int) -> Hashable:
        """Equal for seeds that give the same task. By default every seed is a separate task."""
        return seed

    # -- an episode -----------------------------------------------------------------------------

    def begin(self, task_data: Mapping[str, Any]) -> Running:
        """Make and reset the raw environment of a task. Raises ValueError without a seed."""
        problem = self.check_task(task_data)
        if problem is not None:
            raise ValueError(problem)
        raw = self._raw(task_data)
        observation, _ = raw.reset(seed=task_data["seed"])
        return Running(raw, observation, text=self.describe(raw, observation))

    def _raw(self, task_data: Mapping[str, Any]) -> Any:
        options = json.dumps(self.raw_options(task_data))
        if not self.shares_model:
            return _make(self.env_id, options)
        return copy.copy(_template(self.env_id, options))

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> Running:
        return self.begin(task_data)

    def _format_prompt(self, state: Running, step: int) -> str:
        words = ", ".join(self.actions)
        if step == 0:
            if not self.config.explain_actions:
                return f"{self.rules}\nAnswer with one of: {words}.\n\n{state.text}"
            form = f"Answer with one of: {words}."
            return with_form(f"{self.rules}\n\n{state.text}\n", form, self.example_action(state))
        if state.malformed:
            return f"That named no single action. Answer with one of: {words}.\n\n{state.text}"
        return state.text

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
        state.observation, reward, state.terminated = after[0], float(after[1]), bool(after[2])
        state.text = self.describe(state.raw, state.observation)
        info: dict[str, Any] = {"action": word, "anchor": self._anchor(state)}
        if state.terminated:
            info |= self.ending(state, reward)
        return state, reward, state.terminated, info

    def ending(self, state: Running, reward: float) -> dict[str, Any]:
        """The info of the last step: an episode is won if its last reward is positive."""
        return {"win": reward > 0}

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
        """The action words."""
        return list(self.actions)

    def example_action(self, state: Running) -> str:
        """The first action word."""
        return next(iter(self.actions))

    # -- tasks ----------------------------------------------------------------------------------

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        """A task must have a `seed`."""
        seed = task_data.get("seed")
        if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0:
            return None
        return f"task_data needs a 'seed' (an int from 0), got {short_repr(task_data)}"

    def _tasks(self, held_out: bool) -> list[dict[str, int]]:
        """Tasks that differ from each other; a single one if every seed gives the same task."""
        return self._split[held_out]

    @cached_property
    def _split(self) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
        """Seeds of training and evaluation tasks, split by the tasks' identities."""
        train: list[dict[str, int]] = []
        held_out: list[dict[str, int]] = []
        seen: set[Hashable] = set()
        sizes = self.config.train_tasks, self.config.eval_tasks
        fruitless = 0
        for seed in itertools.count():
            running = self.begin({"seed": seed})
            identity = self.identity(running.raw, running.observation, seed)
            side, most = (held_out, sizes[1]) if _held_out(identity) else (train, sizes[0])
            fresh = identity not in seen and len(side) < most
            seen.add(identity)
            if fresh:
                side.append({"seed": seed})
            fruitless = 0 if fresh else fruitless + 1
            if fruitless == _MAX_FRUITLESS or (len(train), len(held_out)) == sizes:
                break
        only = (train or held_out) if len(seen) == 1 else None
        return (only, only) if only else (train, held_out)


def _make(env_id: str, options: str) -> Any:
    gymnasium = importlib.import_module("gymnasium")
    made = gymnasium.make(env_id, disable_env_checker=True, **json.loads(options))
    return made.unwrapped


_template = lru_cache(64)(_make)
"""Raw environments by id and options; classes that share their model copy them."""


def _held_out(identity: Hashable) -> bool:
    digest = hashlib.blake2b(repr(identity).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % EVAL_SHARE == 0


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
