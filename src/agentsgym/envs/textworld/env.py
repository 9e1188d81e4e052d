"""TextWorld: games that `tw-make` generates from a seed, played by the real engine."""

import re
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from agentsgym.envs.command_game import CommandGame, CommandGameEnv, anchor, contained
from agentsgym.envs.extras import ensure, require
from agentsgym.envs.settings import OptionalPath, Tasks, cache_folder
from agentsgym.envs.textworld.games import Recipe, details, distinct_seeds, ensure_games

LAST_SEED = 2**31 - 1
_BLANK = re.compile(r"\n{3,}")
_BANNER = "$$"


class AdventureGame(CommandGame):
    """A running game. `score` counts points out of `max_score`, of which the last command brought
    `points`; `progress` is the engine's intermediate reward: 1 if the last command came closer to
    the win, -1 if it led away, else 0."""

    score = 0

    def __init__(self, game_file: str) -> None:
        textworld = require("textworld", "textworld")
        names = ("won", "lost", "score", "max_score", "admissible_commands", "intermediate_reward",
                 "facts")  # fmt: skip
        with contained(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jericho warns that it does not know the game
            self._engine = textworld.start(
                game_file, textworld.EnvInfos(**dict.fromkeys(names, True))
            )
            weakref.finalize(self, self._engine.close).atexit = False
            self._read(self._engine.reset())

    def step(self, command: str) -> None:
        with contained():
            self._read(self._engine.step(command)[0])

    def _read(self, state: Any) -> None:
        self.text = tidy(state["feedback"])
        self.commands = tuple(sorted(state["admissible_commands"]))
        before, self.score = self.score, int(state["score"] or 0)
        self.points, self.max_score = self.score - before, int(state["max_score"])
        self.progress = int(state["intermediate_reward"] or 0)
        self.won, self.lost = bool(state["won"]), bool(state["lost"])
        self.anchor = anchor(state["facts"])


def tidy(feedback: str) -> str:
    """The story without the title in letter graphics, the input prompt and the status line."""
    lines = feedback.split("\n")
    banners = [number for number, line in enumerate(lines) if _BANNER in line]
    story = "\n".join(lines[banners[-1] + 1 :] if banners else lines)
    before_prompt, prompt, _ = story.rpartition("\n>")
    return _BLANK.sub("\n\n", before_prompt if prompt else story).strip()


class TextWorldEnv(CommandGameEnv):
    """Text adventures with a quest.

    `task_data` is `{"seed": int}`. With `reward="score"` a step earns its points divided by the
    game's maximum, so a perfect game earns 1.0; with `"progress"` it earns the engine's
    intermediate reward (1, 0, -1). A command that is not admissible does not reach the
    engine (its "quit" or "restart" would break the game) and counts as malformed.

    Raises MissingExtra if the extra `textworld` is not installed.
    """

    class Settings(CommandGameEnv.Settings):
        """The settings of TextWorld."""

        max_steps_per_episode: int = 30
        rooms: int = Field(3, ge=1, le=30, description="number of rooms")
        objects: int = Field(6, ge=1, le=100, description="number of objects, at least")
        quest_length: int = Field(4, ge=1, le=30, description="commands that the quest takes")
        reward: Literal["score", "progress"] = Field("score", description="reward of a step")
        cache_dir: OptionalPath = Field(
            None, description="folder for the games; None: ~/.cache/agentsgym/textworld"
        )
        train_tasks: Tasks = Field(16, description="training games")
        eval_tasks: Tasks = Field(8, description="evaluation games")

    config: Settings
    rules = "You are in a text adventure. Do the task by giving one command per turn."
    refusal = "You can't do that now."

    def _set_up(self) -> None:
        ensure("textworld", "textworld")
        if self.config.reward == "progress":
            self.reward_range = (float("-inf"), float("inf"))
        self._recipe = Recipe(self.config.rooms, self.config.objects, self.config.quest_length)
        self._folder = cache_folder("textworld", self.config.cache_dir)

    # -- an episode -----------------------------------------------------------------------------

    def begin(self, task_data: Mapping[str, Any]) -> AdventureGame:
        return AdventureGame(self.game_file(task_data))

    def earned(self, game: AdventureGame) -> tuple[float, dict[str, Any]]:
        """What the setting `reward` says, and the engine's intermediate reward."""
        progress, share = float(game.progress), game.points / max(1, game.max_score)
        reward = share if self.config.reward == "score" else progress
        return reward, {"metrics": {"progress": progress}}

    # -- tasks ----------------------------------------------------------------------------------

    def game_file(self, task_data: Mapping[str, Any]) -> str:
        """The path of a task's game, which is made if it does not exist yet.

        Raises ValueError without `seed`, GenerationFailed.
        """
        seed = task_data.get("seed")
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LAST_SEED:
            raise ValueError(
                f"task_data needs a 'seed' (from 0 to {LAST_SEED}), got {dict(task_data)!r}"
            )
        return str(ensure_games(self._folder, self._recipe, [seed])[0])

    def _tasks(self, held_out: bool) -> list[dict[str, Any]]:
        """Seeds whose games differ, on both sides; missing games are made, about 2 s each."""
        count = self.config.eval_tasks if held_out else self.config.train_tasks
        seeds = distinct_seeds(self._folder, self._recipe, count, held_out=held_out)
        return [{"seed": seed} for seed in seeds]

    # -- the best known play --------------------------------------------------------------------

    def walkthrough(self, task_data: Mapping[str, Any]) -> tuple[str, ...]:
        """The generator's commands that win a task; empty if it gives none."""
        game = details(Path(self.game_file(task_data)))
        return tuple(game.get("metadata", {}).get("walkthrough", ()))

    def plan_after(self, task_data: Mapping[str, Any], actions: Sequence[str]) -> tuple[str, ...]:
        """The rest of the walkthrough: the actions are taken for its first commands."""
        return self.walkthrough(task_data)[len(actions) :]

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """1.0 if the walkthrough fits into the step limit; None if there is no walkthrough, and
        with `reward="progress"`."""
        commands = self.walkthrough(task_data)
        fits = 0 < len(commands) <= self.config.max_steps_per_episode
        return 1.0 if fits and self.config.reward != "progress" else None
