"""Games played in the real engine: `textworld` with its own Z-machine interpreter."""

import re
import warnings
import weakref
from dataclasses import dataclass
from typing import Any

from agentsgym.envs.alfworld.engine import anchor, contained
from agentsgym.envs.extras import require

_BLANK = re.compile(r"\n{3,}")
_BANNER = "$$"


@dataclass(frozen=True, slots=True)
class View:
    """The engine's output after a command.

    `score` counts points out of `max_score`; `progress` is the engine's intermediate reward: 1 if
    the last command came closer to the win, -1 if it led away, else 0. `anchor` is equal for equal
    states of the world.
    """

    text: str
    commands: tuple[str, ...]
    score: int
    max_score: int
    progress: int
    won: bool
    lost: bool
    anchor: str


class Game:
    """A running game, with the commands given so far."""

    def __init__(self, game_file: str) -> None:
        textworld = require("textworld", "textworld")
        self.played: list[str] = []
        with contained(fast=False):
            infos = textworld.EnvInfos(
                won=True,
                lost=True,
                score=True,
                max_score=True,
                admissible_commands=True,
                intermediate_reward=True,
                facts=True,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # jericho warns that it does not know the game
                self._env = textworld.start(game_file, infos)
            weakref.finalize(self, self._env.close).atexit = False
            self.view = _view(self._env.reset())

    def step(self, command: str) -> View:
        """Send a command."""
        with contained(fast=False):
            state, _, _ = self._env.step(command)
            self.view = _view(state)
        self.played.append(command)
        return self.view


def _view(state: Any) -> View:
    return View(
        text=tidy(state["feedback"]),
        commands=tuple(sorted(state["admissible_commands"])),
        score=int(state["score"] or 0),
        max_score=int(state["max_score"]),
        progress=int(state["intermediate_reward"] or 0),
        won=bool(state["won"]),
        lost=bool(state["lost"]),
        anchor=anchor(state["facts"]),
    )


def tidy(feedback: str) -> str:
    """The story without the title in letter graphics, the input prompt and the status line."""
    lines = feedback.split("\n")
    drawn = [number for number, line in enumerate(lines) if _BANNER in line]
    story = "\n".join(lines[drawn[-1] + 1 :] if drawn else lines)
    before_prompt, prompt, _ = story.rpartition("\n>")
    return _BLANK.sub("\n\n", before_prompt if prompt else story).strip()
