"""The check that episodes leave nothing open, however they end."""

import gc
import os
import threading
from collections.abc import Sequence
from typing import Any

from agentsgym.checks.context import Context
from agentsgym.checks.players import RandomPlayer
from agentsgym.checks.playing import Task, play_alone
from agentsgym.checks.report import Finding
from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.run import plays_episodes
from agentsgym.rollout.stepping import SteppedTrial

_NAME = "clean-up"
_FILES = "/proc/self/fd"


class _Ends:
    """Counts the calls of an environment's `_end_episode`, and keeps the first error."""

    def __init__(self, env: MultistepEnv) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self._end = env._end_episode
        setattr(env, "_end_episode", self._watched)  # noqa: B010

    def _watched(self, session_id: str, state: Any) -> None:
        self.count += 1
        try:
            self._end(session_id, state)
        except Exception as error:
            self.error = self.error or error
            raise


def clean_up(context: Context) -> Finding:
    """Episodes that are over, cut or abandoned leave no thread and no file open."""
    tasks = context.tasks(6, most=4)
    env = context.make(None)
    ends = _Ends(env)
    _play(env, tasks, context.seed)  # what is opened once may stay open
    before = _open()
    ends.count = 0
    episodes = _play(env, tasks, context.seed)
    left = {name: now - before[name] for name, now in _open().items()}
    if ends.error is not None:
        text = f"_end_episode raised {type(ends.error).__name__}: {ends.error}"
        return Finding(_NAME, False, text[:300])
    # A few more than before may have other reasons; a leak grows with every episode.
    leaks = [f"{count} more {name}" for name, count in left.items() if count >= episodes]
    if leaks:
        return Finding(_NAME, False, f"after {episodes} episodes, {' and '.join(leaks)} were open")
    return Finding(_NAME, True, f"{ends.count} episodes ended, and left nothing open")


def _play(env: MultistepEnv, tasks: Sequence[Task], seed: int) -> int:
    """Play each task to the end, and stop it after the first prompt in two ways; returns how many
    trials that are."""
    played = len(play_alone(env, tasks, RandomPlayer(seed)))
    if plays_episodes(env):
        return played
    for task in tasks:
        SteppedTrial(env, task).cut("cut")
        SteppedTrial(env, task).close()
    return played + 2 * len(tasks)


def _open() -> dict[str, int]:
    gc.collect()
    found = {"threads": threading.active_count()}
    if os.path.isdir(_FILES):
        found["files or connections"] = len(os.listdir(_FILES))
    return found
