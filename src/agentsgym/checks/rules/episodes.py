"""The checks of an episode's end: `done` and the limits end it, and it leaves nothing open."""

import gc
import os
import threading
from collections.abc import Sequence
from typing import Any

from agentsgym.agents import ScriptedAgent
from agentsgym.checks.context import Context
from agentsgym.checks.players import Always, RandomPlayer, Record, Task, play_alone
from agentsgym.checks.report import Finding
from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.run import plays_episodes
from agentsgym.rollout.stepping import SteppedTrial
from agentsgym.types import Rollout


class Watch:
    """Counts every step that an environment takes, and those after the end."""

    def __init__(self, env: MultistepEnv) -> None:
        self.steps = 0
        self.after_done = 0
        self._over: set[str] = set()
        # An override of `_begin_episode` may do without `_initialize_episode`.
        own = type(env)._begin_episode is not MultistepEnv._begin_episode
        begins = "_begin_episode" if own else "_initialize_episode"
        self._begin, self._step = getattr(env, begins), env._step_episode
        setattr(env, begins, self._watched_begin)
        setattr(env, "_step_episode", self._watched_step)  # noqa: B010

    def _watched_begin(self, session_id: str, *arguments: Any) -> Any:
        self._over.discard(session_id)
        return self._begin(session_id, *arguments)

    def _watched_step(self, session_id: str, state: Any, action: str) -> Any:
        self.steps += 1
        self.after_done += session_id in self._over
        answer = self._step(session_id, state, action)
        if answer[2]:
            self._over.add(session_id)
        return answer


def ending(context: Context) -> Finding:
    """No step is played after done, every step is recorded, and the limits are kept."""
    tasks = context.tasks(3)
    env = context.make(None)
    watch = Watch(env)
    player = RandomPlayer(context.seed)
    records = play_alone(env, tasks, player)
    batch = env.run_trial(tasks, ScriptedAgent(_script(records[0])))
    recorded = sum(record.steps for record in records)
    recorded += sum(len(episode.actions) for r in batch.rollouts for episode in r.episodes)
    if watch.after_done:
        return Finding("ending", False, f"{watch.after_done} steps were played after done")
    early = _early(batch.rollouts)
    if early:
        return Finding("ending", False, early)
    if watch.steps != recorded and not any(rollout.failed for rollout in batch.rollouts):
        text = f"the environment took {watch.steps} steps, but {recorded} are recorded"
        return Finding("ending", False, text)
    return _limits(context, records)


def _early(rollouts: Sequence[Rollout]) -> str | None:
    """The problem, if an episode continued after a step that was done."""
    for rollout in rollouts:
        for episode in rollout.episodes:
            played = episode.actions
            if any(step.done for step in played[:-1]):
                return f"an episode of {len(played)} steps continues after done"
    return None


def _script(record: Record) -> list[str]:
    return list(record.actions) or [""]


def _limits(context: Context, records: list[Record]) -> Finding:
    config = context.env.config
    limit, episodes = config.max_steps_per_episode, config.episodes_per_trial
    silent = play_alone(context.make(None), context.tasks(1, most=2), Always(""))
    longest = max(record.steps for record in [*records, *silent])
    if longest > limit * episodes + episodes:
        return Finding("ending", False, f"an episode took {longest} steps, the limit is {limit}")
    allowed = config.error_allowance
    for record in silent:
        if all(record.malformed) and record.steps > (allowed + 1) * episodes + episodes:
            text = f"{record.steps} malformed actions were taken, the limit is {allowed}"
            return Finding("ending", False, text)
    stops = sorted({stop for record in [*records, *silent] for stop in record.stops})
    return Finding(
        "ending", True, f"longest {longest} of {limit} steps; ended by {', '.join(stops)}"
    )


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
        return Finding("clean-up", False, text[:300])
    # A few more than before may have other reasons; a leak grows with every episode.
    leaks = [f"{count} more {name}" for name, count in left.items() if count >= episodes]
    if leaks:
        return Finding(
            "clean-up", False, f"after {episodes} episodes, {' and '.join(leaks)} were open"
        )
    return Finding("clean-up", True, f"{ends.count} episodes ended, and left nothing open")


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
