"""ALFWorld: household tasks in text, played by the real engine, and its expert."""

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from agentsgym.envs.action_form import with_form
from agentsgym.envs.action_text import read_option, spoken
from agentsgym.envs.alfworld.engine import NOTHING, Game, View, replay, solve
from agentsgym.envs.alfworld.games import (
    Task,
    data_root,
    existing_game,
    game_folder,
    game_roots,
    generated_from,
    generated_tasks,
    official_tasks,
)
from agentsgym.envs.alfworld.generator import TASK_TYPES, generate
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.cache_folder import cache_folder
from agentsgym.envs.dataset import task_dataset
from agentsgym.envs.extras import ensure
from agentsgym.envs.row_guard import task_directories
from agentsgym.envs.settings import EnvSettings, OptionalPath, Tasks
from agentsgym.types import (
    Agent,
    Message,
    PrivilegedAgent,
    SessionView,
    Tokenizer,
    checked_path,
    real_path,
)

GENERATED_TRAIN = 36
GENERATED_EVAL = 12
_TAG = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_RULES = "You are in a household. Do the task by giving one command per turn."
_FORM = "Answer with one command only."
_TAGGED = " Write it as <action>command</action>."


@dataclass(frozen=True, slots=True)
class State:
    """An episode after `actions`, the commands that the engine accepted; others change nothing.

    `game` is the running engine game, None once it is won. `text` is the next prompt's text, and
    `plan_length` the number of commands left in the planner's plan (None without `dense_reward`).
    """

    game_file: str
    actions: tuple[str, ...]
    text: str
    commands: tuple[str, ...]
    anchor: str
    won: bool
    plan_length: int | None
    game: Game | None


def _check_task_types(kinds: list[str | int] | None) -> list[str | int] | None:
    known = [*TASK_TYPES, *TASK_TYPES.values()]
    if kinds is not None and not (kinds and all(kind in known for kind in kinds)):
        allowed = ", ".join(f"{name} ({number})" for name, number in TASK_TYPES.items())
        raise ValueError(f"must list task types out of {allowed}; got {kinds!r}")
    return kinds


class ALFWorldEnv(MultistepEnv):
    """Find, clean, heat, cool and place things in a household, by text commands.

    `task_data` is `{"game_file": path}` of a `game.tw-pddl` in the cache or the official data (with
    `make(…, trust=True)` anywhere). The winning step earns 1.0. `dense_reward` is added for each
    command by which the planner's remaining plan gets shorter, and subtracted if it gets longer. A
    command that is not admissible gets the answer "Nothing happens." and counts as malformed.

    Raises MissingExtra if the extra `alfworld` is not installed.
    """

    class Settings(EnvSettings):
        """The settings of ALFWorld."""

        max_steps_per_episode: int = 50
        workers: int = Field(1, description="processes that play the games (0: this process)")
        data: OptionalPath = Field(
            None, description="folder of the official data; None: ALFWORLD_DATA if it has games"
        )
        cache_dir: OptionalPath = Field(
            None, description="folder for generated games; None: ~/.cache/agentsgym"
        )
        task_types: Annotated[list[str | int] | None, AfterValidator(_check_task_types)] = Field(
            None, description="names or numbers (1 to 6) of task types; None: all"
        )
        eval_split: Literal["valid_seen", "valid_unseen"] = Field(
            "valid_unseen",
            description="which held-out games to evaluate on: in rooms known from training, or in "
            "new ones",
        )
        train_tasks: Tasks | None = Field(
            None, description=f"training games; None: all official ones or {GENERATED_TRAIN}"
        )
        eval_tasks: Tasks | None = Field(
            None, description=f"evaluation games; None: all official ones or {GENERATED_EVAL}"
        )
        admissible_commands: bool = Field(
            True, description="list the admissible commands in every prompt"
        )
        action_tags: bool = Field(False, description="read the command from <action>…</action>")
        dense_reward: float = Field(
            0.0,
            ge=0,
            description="reward per command by which the planner's plan becomes shorter",
        )

    config: Settings
    reward_range = (0.0, 1.0)

    def __init__(
        self, tokenizer: Tokenizer | None = None, env_config: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(tokenizer, env_config)
        ensure("alfworld", "alfworld")
        ensure("fast_downward", "alfworld")
        if self.config.dense_reward:
            self.reward_range = (float("-inf"), float("inf"))

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> State:
        game_file = self.game_file(task_data)
        game = Game(game_file, planning=self._dense)
        return self._state(game, game_file, (), game.view.text)

    def _format_prompt(self, state: State, step: int) -> str:
        parts = [state.text]
        if step == 0:
            parts.insert(0, _RULES + (_TAGGED if self.config.action_tags else ""))
        if self.config.admissible_commands:
            parts.append(f"Admissible commands: {', '.join(state.commands)}.")
        prompt = "\n\n".join(parts)
        if step > 0 or not self.config.explain_actions:
            return prompt
        return with_form(f"{prompt}\n", _FORM, self.example_action(state))

    def _format_answer(self, state: State, step: int) -> str:
        return state.text

    def _step_episode(
        self, session_id: str, state: State, action: str
    ) -> tuple[State, float, bool, dict[str, Any]]:
        command = self.command(action, state.commands)
        if state.won or command is None:
            return self._refused(state)
        game = self._game(state)
        view = game.step(command)
        after = self._state(game, state.game_file, (*state.actions, command), view.text)
        reward = float(after.won) + self._progress(state, after)
        info = {**self._info(after), "malformed": False, "win": after.won}
        if after.won:
            info["stop_reason"] = "win"
        return after, reward, after.won, info

    def admissible_actions(self, state: State) -> list[str]:
        """The actions that an agent may take in a state."""
        return [self.spoken(command) for command in state.commands]

    def example_action(self, state: State) -> str:
        """The command that looks around; without it the first one."""
        looking = "look" if "look" in state.commands else state.commands[0]
        return self.spoken(looking)

    def spoken(self, command: str) -> str:
        """A command as an action, with tags if the configuration requires them."""
        return f"<action>{command}</action>" if self.config.action_tags else command

    def command(self, action: str, commands: Sequence[str]) -> str | None:
        """The command out of `commands` in an action (see `read_option`); None without one."""
        if not self.config.action_tags:
            return read_option(action, commands)
        tagged = _TAG.findall(spoken(action))
        return read_option(tagged[0], commands) if len(tagged) == 1 else None

    def _refused(self, state: State) -> tuple[State, float, bool, dict[str, Any]]:
        """The engine's answer to a command that is not admissible, without running the engine."""
        info = {**self._info(state), "malformed": True, "win": state.won}
        return replace(state, text=NOTHING), 0.0, state.won, info

    def _info(self, state: State) -> dict[str, Any]:
        info: dict[str, Any] = {"anchor": state.anchor}
        if state.plan_length is not None:
            info["plan_length"] = state.plan_length
        return info

    def _game(self, state: State) -> Game:
        """The running game of a state; replayed if the game has moved on from this state."""
        if state.game is not None and tuple(state.game.played) == state.actions:
            return state.game
        game = replay(state.game_file, state.actions)
        game.planning = self._dense
        return game

    def _state(self, game: Game, game_file: str, actions: tuple[str, ...], text: str) -> State:
        view: View = game.view
        return State(
            game_file=game_file,
            actions=actions,
            text=text,
            commands=view.commands,
            anchor=view.anchor,
            won=view.won,
            plan_length=None if view.plan is None else len(view.plan),
            game=None if view.won else game,
        )

    @property
    def _dense(self) -> bool:
        return bool(self.config.dense_reward)

    def _progress(self, before: State, after: State) -> float:
        if before.plan_length is None or after.plan_length is None:
            return 0.0
        return float(self.config.dense_reward * (before.plan_length - after.plan_length))

    # -- tasks ----------------------------------------------------------------------------------

    def game_file(self, task_data: Mapping[str, Any]) -> str:
        """The path of a task's game. A generated game that is missing is made again in the cache,
        even if the task names another folder.

        Raises ValueError if `game_file` is missing or invalid, PathRefused for a file outside the
        allowed directories, and FileNotFoundError if there is no such game.
        """
        path = task_data.get("game_file")
        if not isinstance(path, str):
            raise ValueError(f"task_data needs a 'game_file' (a path), got {dict(task_data)!r}")
        root = data_root(self.config.data)
        cache = cache_folder("alfworld", self.config.cache_dir)
        shared = task_directories(trusted=self.trusts_tasks)
        allowed = [*shared, real_path(cache), *game_roots(root)]
        existing = existing_game(path, root, allowed)
        if existing is not None:
            return str(existing)
        origin = generated_from(task_data)
        if origin is not None:
            folder = game_folder(cache, origin.split, origin.task_type, origin.seed)
            return str(generate(folder, origin.task_type, origin.split, origin.seed))
        if root is None or Path(path).is_absolute():
            checked_path(path, allowed)
        raise FileNotFoundError(f"there is no game {path}")

    def get_train_dataset(self) -> Any:
        """Games of the split `train`: the official ones if they are installed, else generated."""
        return task_dataset(self, self._tasks("train", "train_tasks", GENERATED_TRAIN))

    def get_eval_dataset(self) -> Any:
        """Games of `eval_split`; none of them is also a training game."""
        split = self.config.eval_split
        return task_dataset(self, self._tasks(split, "eval_tasks", GENERATED_EVAL))

    def _tasks(self, split: str, key: str, otherwise: int) -> Iterable[Task]:
        kinds = task_type_names(self.config.task_types)
        root = data_root(self.config.data)
        if root is not None:
            return official_tasks(root, split, kinds, getattr(self.config, key))
        folder = cache_folder("alfworld", self.config.cache_dir)
        return generated_tasks(folder, split, kinds, getattr(self.config, key) or otherwise)

    # -- the expert -----------------------------------------------------------------------------

    def expert_plan(self, task_data: Mapping[str, Any]) -> tuple[str, ...]:
        """The planner's commands that win a task; empty if it finds none."""
        return _plan(self.game_file(task_data), "seed" in task_data)

    def optimal_agent(self) -> Agent:
        """The expert as an agent."""
        return ExpertAgent()

    def teacher_agent(self, *, detours: float = 0.0, seed: int = 0) -> Agent:
        """The expert, who takes a random other action with probability `detours` at each step."""
        return ExpertAgent(detours=detours, seed=seed)

    def reference_steps(self, task_data: Mapping[str, Any]) -> int:
        """Number of commands that the expert needs, for regret in steps."""
        return len(self.expert_plan(task_data))

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """The expert's reward: 1.0 if its plan fits into the step limit, plus dense rewards."""
        steps = self.reference_steps(task_data)
        if not steps:
            return None
        limit = self.config.max_steps_per_episode
        dense: float = self.config.dense_reward
        return float(steps <= limit) + dense * float(min(steps, limit))


def task_type_names(kinds: Sequence[str | int] | None) -> list[str]:
    """Task types, by name or number, as names; None gives all."""
    numbers = {number: name for name, number in TASK_TYPES.items()}
    if kinds is None:
        return list(TASK_TYPES)
    return [numbers[kind] if isinstance(kind, int) else kind for kind in kinds]


@lru_cache(maxsize=4096)
def _plan(game_file: str, generated: bool) -> tuple[str, ...]:
    """The plan stored with a generated game; for other games the planner computes it."""
    if generated:
        walkthrough = json.loads(Path(game_file).read_text()).get("walkthrough")
        if walkthrough:
            return tuple(walkthrough)
    return solve(game_file) or ()


@dataclass(frozen=True, slots=True)
class _Course:
    """The expert's state: the actions of the game so far and the rest of its plan."""

    actions: tuple[str, ...]
    plan: tuple[str, ...]


class ExpertAgent(PrivilegedAgent):
    """Plays the planner's commands.

    It makes a new plan after a command that was not in its plan: its own detour or another agent's
    command.

    Args:
        detours: probability at each step of a random admissible command instead of the planned one.
        seed: the seed of the detours.
    """

    def __init__(self, *, detours: float = 0.0, seed: int = 0) -> None:
        self._detours = detours
        self._rng = random.Random(seed)

    def for_session(self, session: SessionView) -> Agent:
        """The player of one game."""
        return _ExpertPlayer(session, self._detours, self._rng)


class _ExpertPlayer:
    def __init__(self, session: SessionView, detours: float, rng: random.Random) -> None:
        if not isinstance(session.env, ALFWorldEnv):
            raise TypeError(f"an ExpertAgent plays ALFWorld, not {session.env.name}")
        self._env = session.env
        self._session = session
        self._detours = detours
        self._rng = rng

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The planner's next command ("look" if no command is left)."""
        env, actions = self._env, self._session.actions
        if self._detours and self._rng.random() < self._detours:
            return env.spoken(self._rng.choice(self._replayed().view.commands)), None
        course = agent_state
        if not isinstance(course, _Course) or course.actions != actions:
            course = _Course(actions, self._plan())
        action = env.spoken(course.plan[0] if course.plan else "look")
        return action, _Course((*actions, action), course.plan[1:])

    def _plan(self) -> tuple[str, ...]:
        if not self._session.actions:
            return self._env.expert_plan(self._session.task_data)
        return self._replayed().plan()

    def _replayed(self) -> Game:
        """The session's game, replayed in this process."""
        game = Game(self._env.game_file(self._session.task_data))
        for action in self._session.actions:
            command = self._env.command(action, game.view.commands)
            if command is not None:
                game.step(command)
        return game
