"""The adapter, and one environment class per game."""

import contextlib
import importlib
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, create_model

from agentsgym.envs.action_text import with_form
from agentsgym.envs.dataset import FIRST_EVAL_SEED, SeedTasks, read_seed
from agentsgym.envs.extras import require
from agentsgym.envs.settings import EnvSettings, Tasks
from agentsgym.envs.textarena.games import GAMES, ArenaGame, moves
from agentsgym.envs.textarena.play import (
    ArenaPlay,
    UnplayableSeed,
    begin,
    example_move,
    last_move,
    playable,
)

_FORM = "Reply with one move in square brackets and nothing else."
_TURN_OPTIONS = ("max_turns", "num_turns", "N")


class TextArenaEnv(SeedTasks):
    """One of TextArena's games; the subclass sets `game`.

    `task_data` is `{"seed": int}`. The last `[...]` of an action is its move. The game pays at its
    end; if `max_steps_per_episode` ends it earlier, it pays the game's own measure of progress.
    A move that the game calls invalid counts as malformed, unless only the solution shows that it
    is wrong: a mine, a letter, a digit.
    """

    game: ClassVar[ArenaGame]

    class Settings(EnvSettings):
        """The settings of a TextArena game; a game's class has its own `variant`."""

        variant: str = Field("", description="TextArena's variant of the game")
        train_tasks: Tasks = Field(512, description="number of training seeds")
        eval_tasks: Tasks = Field(64, description="number of evaluation seeds")

    config: Settings

    def _set_up(self) -> None:
        package = require("textarena", "textarena")
        self._examples: dict[int, str] = {}
        variant, self._options = self.config.variant, dict[str, Any]()
        if (self.game.name, variant) == ("Countdown", "random"):  # ours: TextArena has none
            variant, self._options = "", {"numbers": None, "target": None}
        self._env_id = f"{self.game.name}-v0{'-' if variant else ''}{variant}-raw"
        self._limit_turns(package.envs.registration.ENV_REGISTRY[self._env_id])

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> ArenaPlay:
        play = self._begin(read_seed(task_data))
        play.raw.state.error_allowance = self.config.error_allowance
        return play

    def _format_prompt(self, state: ArenaPlay, step: int) -> str:
        text = state.text or "Your move."
        if step > 0 or not self.config.explain_actions:
            return text
        return with_form(f"{text}\n", _FORM, self.example_action(state))

    def _format_answer(self, state: ArenaPlay, step: int) -> str:
        return state.text

    def _step_episode(
        self, session_id: str, state: ArenaPlay, action: str
    ) -> tuple[ArenaPlay, float, bool, dict[str, Any]]:
        before, move = state.done, last_move(action)
        fair = self.game.guesses and move.upper() in (moves(self.game.name, state.raw) or ())
        state.step(move)
        reward = 0.0 if before or state.reward is None else state.reward
        info: dict[str, Any] = {"malformed": state.malformed and not fair, "move": state.move}
        if self.game.wins:
            info["win"] = state.reward == 1.0
        if state.done:
            info |= {"stop_reason": _stop_reason(info), "message": state.reason}
        return state, reward, state.done, info

    def _calculate_reward(
        self,
        state: ArenaPlay,
        actions: Sequence[str],
        final_action: str,
        step_rewards: Sequence[float],
    ) -> float:
        """The sum, plus the game's own measure of progress if a limit ended the game."""
        return sum(step_rewards) + (0.0 if state.done else state.progress())

    def admissible_actions(self, state: ArenaPlay) -> list[str] | None:
        return moves(self.game.name, state.raw)

    def example_action(self, state: ArenaPlay) -> str:
        if state.seed not in self._examples:
            self._examples[state.seed] = example_move(state)
        return self._examples[state.seed]

    # -- tasks ----------------------------------------------------------------------------------

    @property
    def one_puzzle(self) -> bool:
        """Whether every seed gives the same puzzle, so that there is only one task."""
        return self.game.one_puzzle and "numbers" not in self._options

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """The reward of perfect play if every task of the game can be solved, else None.

        Random numbers (Countdown's "random") may not reach their target.
        """
        return self.game.best if self.one_puzzle or not self.game.one_puzzle else None

    def _tasks(self, held_out: bool) -> list[dict[str, int]]:
        """Distinct seeds; a single task, on both sides, if every seed gives the same puzzle."""
        if self.one_puzzle:
            return [{"seed": 0}]
        seeds = self._playable_seeds(FIRST_EVAL_SEED if held_out else 0)
        count = self.config.eval_tasks if held_out else self.config.train_tasks
        return [{"seed": next(seeds)} for _ in range(count)]

    def _playable_seeds(self, first: int) -> Iterator[int]:
        """Seeds from `first` on whose puzzle can be solved; only two games have others."""
        for seed in itertools.count(first):
            with contextlib.suppress(UnplayableSeed):
                some = self.game.name in ("FifteenPuzzle", "LightsOut")
                if not some or playable(self._begin(seed)):
                    yield seed

    def _begin(self, seed: int) -> ArenaPlay:
        return begin(self.game, self._env_id, self._options, seed)

    def _limit_turns(self, spec: Any) -> None:
        """Give the game the configured limit, or take its own."""
        if "max_steps_per_episode" in self.env_config:
            module, _, name = spec.entry_point.partition(":")
            raw_class = getattr(importlib.import_module(module), name)
            if "max_turns" in inspect.signature(raw_class.__init__).parameters:
                self._options["max_turns"] = self.config.max_steps_per_episode
            return
        turns = next((spec.kwargs[key] for key in _TURN_OPTIONS if spec.kwargs.get(key)), None)
        steps = self.game.steps if turns is None else turns + self.game.spare_steps
        self.config = self.config.model_copy(update={"max_steps_per_episode": steps})


def _stop_reason(info: Mapping[str, Any]) -> str:
    return "win" if info.get("win") else "malformed" if info["malformed"] else "done"


def _define(game: ArenaGame) -> type[TextArenaEnv]:
    settings = create_model(
        "Settings",
        __base__=TextArenaEnv.Settings,
        __module__=__name__,
        max_steps_per_episode=(int, game.steps),
        variant=(  # type: ignore[arg-type] # mypy wants a type that it can see
            Literal[game.variants],
            Field("", description="TextArena's variant of the game"),
        ),
    )
    attributes = {
        "__module__": __name__,
        "__doc__": f"TextArena's {game.name}; see TextArenaEnv.",
        "game": game,
        "Settings": settings,
        "reward_range": (game.low, game.high),
    }
    return type(f"TextArena{game.name}Env", (TextArenaEnv,), attributes)


globals().update({f"TextArena{game.name}Env": _define(game) for game in GAMES.values()})
