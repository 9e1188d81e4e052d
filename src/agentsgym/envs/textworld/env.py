"""TextWorld: games that `tw-make` generates from a seed, played by the real engine."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from agentsgym.envs.action_form import with_form
from agentsgym.envs.action_text import read_option
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.cache_folder import cache_folder
from agentsgym.envs.dataset import task_dataset
from agentsgym.envs.extras import ensure
from agentsgym.envs.row_guard import task_directories
from agentsgym.envs.settings import EnvSettings, OptionalPath, Tasks
from agentsgym.envs.textworld.engine import Game
from agentsgym.envs.textworld.games import Kind, Task, details, distinct_seeds, ensure_games, recipe
from agentsgym.types import (
    Agent,
    Message,
    PrivilegedAgent,
    SessionView,
    Tokenizer,
    checked_path,
    real_path,
)
from agentsgym.types.errors import ConfigError

LAST_SEED = 2**31 - 1
_REFUSED = "You can't do that now."
_RULES = "You are in a text adventure. Do the task by giving one command per turn."
_FORM = "Answer with one command only."
_SIZE_KEYS = ("rooms", "objects", "quest_length", "ingredients", "level")


@dataclass(frozen=True, slots=True)
class State:
    """An episode after `actions`, the commands that the engine accepted; others change nothing.

    `game` is the running engine game, None once it is over; `text` is the next prompt's text.
    """

    game_file: str
    actions: tuple[str, ...]
    text: str
    commands: tuple[str, ...]
    score: int
    over: bool
    won: bool
    anchor: str
    game: Game | None


class TextWorldEnv(MultistepEnv):
    """Text adventures with a quest.

    `task_data` is `{"seed": int}`, or `{"game_file": path}` of a `.z8` with its `.json`, in the
    cache (with `make(…, trust=True)` anywhere). With `reward="score"` a step earns its points
    divided by the game's maximum, so a perfect game earns 1.0; with `"progress"` it earns the
    engine's intermediate reward (1, 0, -1); with `"win"` the winning step earns 1.0. A command that
    is not admissible does not reach the engine (its "quit" or "restart" would break the game) and
    counts as malformed.

    Raises MissingExtra if the extra `textworld` is not installed, and ConfigError for a size that
    the kind of game does not have.
    """

    class Settings(EnvSettings):
        """The settings of TextWorld."""

        max_steps_per_episode: int = 30
        workers: int = Field(1, description="processes that play the games (0: this process)")
        kind: Kind = Field("custom", description="kind of game")
        rooms: int | None = Field(
            None, ge=1, le=30, description="custom (3) and cooking (1, 6, 9 or 12): rooms"
        )
        objects: int | None = Field(None, ge=1, le=100, description="custom (6): objects, at least")
        quest_length: int | None = Field(
            None, ge=1, le=30, description="custom (4): commands that the quest takes"
        )
        ingredients: int | None = Field(
            None, ge=1, le=20, description="cooking (1): ingredients of the meal"
        )
        level: int | None = Field(
            None, ge=1, le=300, description="coin_collector, treasure_hunter (5): difficulty"
        )
        reward: Literal["score", "progress", "win"] = Field("score", description="reward of a step")
        admissible_commands: bool = Field(
            True, description="list the admissible commands in every prompt"
        )
        cache_dir: OptionalPath = Field(
            None, description="folder for the games; None: ~/.cache/agentsgym/textworld"
        )
        train_tasks: Tasks = Field(16, description="training games")
        eval_tasks: Tasks = Field(8, description="evaluation games")

    config: Settings
    reward_range = (0.0, 1.0)

    def __init__(
        self, tokenizer: Tokenizer | None = None, env_config: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(tokenizer, env_config)
        ensure("textworld", "textworld")
        if self.config.reward == "progress":
            self.reward_range = (float("-inf"), float("inf"))
        try:
            self._recipe = recipe(
                self.config.kind, {k: getattr(self.config, k) for k in _SIZE_KEYS}
            )
        except ValueError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        self._folder = cache_folder("textworld", self.config.cache_dir)

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> State:
        game_file = self.game_file(task_data)
        return self._state(Game(game_file), game_file, ())

    def _format_prompt(self, state: State, step: int) -> str:
        parts = [_RULES, state.text] if step == 0 else [state.text]
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
        command = read_option(action, state.commands)
        if state.over or command is None:
            refused = {"malformed": True, "win": state.won, "anchor": state.anchor}
            return replace(state, text=_REFUSED), 0.0, state.over, refused
        game = self._game(state)
        view = game.step(command)
        after = self._state(game, state.game_file, (*state.actions, command))
        reward = {
            "score": (view.score - state.score) / max(1, view.max_score),
            "progress": float(view.progress),
            "win": float(view.won),
        }[self.config.reward]
        info: dict[str, Any] = {"malformed": False, "win": view.won, "anchor": view.anchor}
        info["metrics"] = {"progress": float(view.progress)}
        if after.over:
            info["stop_reason"] = "win" if view.won else "lost"
        return after, reward, after.over, info

    def admissible_actions(self, state: State) -> list[str]:
        """The actions that an agent may take in a state."""
        return list(state.commands)

    def example_action(self, state: State) -> str:
        """The command that looks around; without it the first one."""
        return "look" if "look" in state.commands else state.commands[0]

    def _game(self, state: State) -> Game:
        """The running game of a state; replayed if the game has moved on from this state."""
        if state.game is not None and tuple(state.game.played) == state.actions:
            return state.game
        game = Game(state.game_file)
        for command in state.actions:
            game.step(command)
        return game

    def _state(self, game: Game, game_file: str, actions: tuple[str, ...]) -> State:
        view = game.view
        over = view.won or view.lost
        return State(
            game_file=game_file,
            actions=actions,
            text=view.text,
            commands=view.commands,
            score=view.score,
            over=over,
            won=view.won,
            anchor=view.anchor,
            game=None if over else game,
        )

    # -- tasks ----------------------------------------------------------------------------------

    def game_file(self, task_data: Mapping[str, Any]) -> str:
        """The path of a task's game, which is made if it does not exist yet.

        Raises ValueError without `seed` and `game_file`, PathRefused for a file outside the
        allowed directories, FileNotFoundError, GenerationFailed.
        """
        path = task_data.get("game_file")
        if isinstance(path, str):
            return str(self._named_game(path))
        seed = task_data.get("seed")
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LAST_SEED:
            raise ValueError(
                f"task_data needs a 'seed' (from 0 to {LAST_SEED}) or a 'game_file', "
                f"got {dict(task_data)!r}"
            )
        return str(ensure_games(self._folder, self._recipe, [seed])[0])

    def _named_game(self, name: str) -> Path:
        allowed = [*task_directories(trusted=self.trusts_tasks), real_path(self._folder)]
        path = checked_path(name, allowed)
        if path.suffix != ".z8":  # the engine would read other files with other interpreters
            raise ValueError(f"a TextWorld game is a .z8 file with its .json, got {name}")
        for part in (path, checked_path(str(path.with_suffix(".json")), allowed)):
            if not part.is_file():
                raise FileNotFoundError(f"there is no game {name} ({part.name} is missing)")
        return path

    def get_train_dataset(self) -> Any:
        """Seeds whose games differ; missing games are made, about 2 s each."""
        return task_dataset(self, self._tasks("train_tasks", held_out=False))

    def get_eval_dataset(self) -> Any:
        """Other seeds, whose games differ from all training games."""
        return task_dataset(self, self._tasks("eval_tasks", held_out=True))

    def _tasks(self, key: str, *, held_out: bool) -> list[Task]:
        count = getattr(self.config, key)
        seeds = distinct_seeds(self._folder, self._recipe, count, held_out=held_out)
        return [Task(seed=seed) for seed in seeds]

    # -- the best known play --------------------------------------------------------------------

    def walkthrough(self, task_data: Mapping[str, Any]) -> tuple[str, ...]:
        """The generator's commands that win a task; empty if it gives none."""
        game = details(Path(self.game_file(task_data)))
        return tuple(game.get("metadata", {}).get("walkthrough", ()))

    def optimal_agent(self) -> Agent:
        """The agent that plays the walkthrough."""
        return WalkthroughAgent()

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """The agent that plays the walkthrough."""
        return self.optimal_agent()

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """1.0 if the walkthrough fits into the step limit; None if there is no walkthrough, and
        with `reward="progress"`."""
        commands = self.walkthrough(task_data)
        fits = 0 < len(commands) <= self.config.max_steps_per_episode
        return 1.0 if fits and self.config.reward != "progress" else None


class WalkthroughAgent(PrivilegedAgent):
    """Gives the walkthrough's commands in order, then "look" forever.

    It only counts its own commands, so it cannot continue a game that another agent began.
    """

    def for_session(self, session: SessionView) -> Agent:
        """The player of one game."""
        return _WalkthroughPlayer(session)


class _WalkthroughPlayer:
    def __init__(self, session: SessionView) -> None:
        if not isinstance(session.env, TextWorldEnv):
            raise TypeError(f"a WalkthroughAgent plays TextWorld, not {session.env.name}")
        self._session = session
        self._commands = session.env.walkthrough(session.task_data)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The walkthrough's next command."""
        number = len(self._session.actions)
        return (self._commands[number] if number < len(self._commands) else "look"), None
