"""Text games whose engine lists the admissible commands: what ALFWorld and TextWorld share.

An engine of `textworld` shares one parser between all games, so it fails with several threads. It
overwrites `sys.argv` permanently and `sys.stdout` while it translates, and importing `alfworld`
sets `ALFWORLD_DATA`. All calls into an engine go through `contained`.
"""

import hashlib
import os
import sys
import tempfile
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from agentsgym.envs.action_text import read_option, with_form
from agentsgym.envs.dataset import ListedTasks
from agentsgym.envs.settings import EnvSettings
from agentsgym.types import Agent, PrivilegedAgent, SessionView

Replacements = Sequence[tuple[Any, str, Any, Any]]
"""Module or class, attribute, the engine's own value, and ours."""

_FORM = "Answer with one command only."
_LOCK = threading.Lock()


class GenerationFailed(RuntimeError):
    """No game could be generated; the message says why."""


@contextmanager
def published(folder: Path) -> Iterator[Path]:
    """A scratch folder for the files of a game, which gets the name `folder` when it is complete.
    If another process was first, its identical game stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as scratch:
        made = Path(scratch) / folder.name
        made.mkdir()
        yield made
        try:
            os.rename(made, folder)
        except OSError:
            if not folder.is_dir():
                raise


@contextmanager
def contained(replacements: Callable[[], Replacements] = tuple) -> Iterator[None]:
    """Hold the engine's lock; restore `sys.argv`, `sys.stdout`, `ALFWORLD_DATA` and what was
    replaced afterwards, so that other users of the engine in this process see it unchanged."""
    with _LOCK:
        argv, stdout, data = sys.argv, sys.stdout, os.environ.get("ALFWORLD_DATA")
        replaced = replacements()
        try:
            for owner, name, _, ours in replaced:
                setattr(owner, name, ours)
            yield
        finally:
            for owner, name, stock, _ in replaced:
                setattr(owner, name, stock)
            sys.argv, sys.stdout = argv, stdout
            os.environ.pop("ALFWORLD_DATA", None)
            if data is not None:
                os.environ["ALFWORLD_DATA"] = data


class CommandGame:
    """A running game, after the engine's last output.

    `text` is the output, or our refusal of a command; `commands` are the admissible commands,
    sorted; `anchor` is equal for equal states of the world.
    """

    text: str
    commands: tuple[str, ...]
    anchor: str
    won: bool
    lost: bool = False

    @abstractmethod
    def step(self, command: str) -> None:
        """Send an admissible command."""

    @property
    def over(self) -> bool:
        """Whether the game is won or lost."""
        return self.won or self.lost


class CommandGameEnv(ListedTasks):
    """A game played by commands, which is the state of its episode.

    A command that is not admissible does not reach the engine and counts as malformed.
    """

    rules: str
    """The first words of an episode's first prompt."""
    refusal: ClassVar[str]
    """The answer to a command that is not admissible."""
    reward_range = (0.0, 1.0)

    class Settings(EnvSettings):
        """The settings of a game played by commands."""

        workers: int = Field(1, description="processes that play the games (0: this process)")
        admissible_commands: bool = Field(
            True, description="list the admissible commands in every prompt"
        )

    config: Settings

    @abstractmethod
    def begin(self, task_data: Mapping[str, Any]) -> CommandGame:
        """The game of a task at its start."""

    @abstractmethod
    def earned(self, game: Any) -> tuple[float, dict[str, Any]]:
        """The reward of the game's last command, and more `info` about it."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> CommandGame:
        return self.begin(task_data)

    def _format_prompt(self, state: CommandGame, step: int) -> str:
        parts = [self.rules, state.text] if step == 0 else [state.text]
        if self.config.admissible_commands:
            parts.append(f"Admissible commands: {', '.join(state.commands)}.")
        prompt = "\n\n".join(parts)
        if step > 0 or not self.config.explain_actions:
            return prompt
        return with_form(f"{prompt}\n", _FORM, self.example_action(state))

    def _format_answer(self, state: CommandGame, step: int) -> str:
        return state.text

    def _step_episode(
        self, session_id: str, state: CommandGame, action: str
    ) -> tuple[CommandGame, float, bool, dict[str, Any]]:
        command = None if state.over else self.command(action, state.commands)
        reward, info = 0.0, dict[str, Any]()
        if command is None:
            state.text = self.refusal
        else:
            state.step(command)
            reward, info = self.earned(state)
            if state.over:
                info["stop_reason"] = "win" if state.won else "lost"
        info |= {"malformed": command is None, "win": state.won, "anchor": state.anchor}
        return state, reward, state.over, info

    def command(self, action: str, commands: Sequence[str]) -> str | None:
        """The command out of `commands` in an action (see `read_option`); None without one."""
        return read_option(action, commands)

    def admissible_actions(self, state: CommandGame) -> list[str]:
        return list(state.commands)

    @abstractmethod
    def plan_after(self, task_data: Mapping[str, Any], actions: Sequence[str]) -> tuple[str, ...]:
        """The commands that are known to win a task after these actions; empty if none are."""

    def optimal_agent(self) -> Agent:
        return ExpertAgent()

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        return ExpertAgent()

    def example_action(self, state: CommandGame) -> str:
        """The command that looks around; without it the first one."""
        return "look" if "look" in state.commands else state.commands[0]


class ExpertAgent(PrivilegedAgent):
    """Plays the commands that are known to win a game.

    It makes a new plan after a command that was not in its plan, of another agent.
    """

    def for_session(self, session: SessionView) -> Agent:
        return _ExpertPlayer(session)


class _ExpertPlayer:
    def __init__(self, session: SessionView) -> None:
        self._session = session

    def get_action(self, messages: list[dict[str, Any]], agent_state: Any) -> tuple[str, Any]:
        """The next command of the plan ("look" if none is left); the agent's state holds the
        actions of the game so far and the rest of the plan."""
        session = self._session
        known, plan = agent_state or (None, ())
        if known != session.actions:
            plan = session.env.plan_after(session.task_data, session.actions)
        action = plan[0] if plan else "look"
        return action, ((*session.actions, action), plan[1:])


_EXAMINATIONS = frozenset({"checked", "examined"})
"""Facts that record past examinations and do not affect the world. Negated facts are ignored too:
the engine keeps them for facts that were once true, so they describe the history, not the state."""


def anchor(facts: Iterable[Any]) -> str:
    """16 hexadecimal digits that depend only on the set of facts, not on order or hash seed."""
    digest = 0
    for fact in facts:
        if fact.name not in _EXAMINATIONS and not fact.is_negation:
            digest ^= _fact_digest(fact)
    return f"{digest:016x}"


@lru_cache(maxsize=1 << 16)
def _fact_digest(fact: Any) -> int:
    return int.from_bytes(hashlib.blake2b(str(fact).encode(), digest_size=8).digest(), "big")
