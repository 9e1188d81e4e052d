"""The checks of an episode's end: `done` ends it, and it leaves nothing open."""

import gc
import os
import threading
from collections.abc import Sequence
from typing import Any

from agentsgym.agents import ScriptedAgent
from agentsgym.checks.context import Context, Failed, Passed
from agentsgym.checks.playing import Task, agent_texts, play_in_turn, random_player, taken
from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.drive import plays_episodes
from agentsgym.rollout.stepping import SteppedTrial
from agentsgym.types.text import named_error


def ending(context: Context) -> Passed:
    """No step follows done, every step is recorded, and no answer to a last action raises."""
    tasks = context.tasks(3)
    env = context.make(None)
    sessions: list[str] = []
    step = env._step_episode

    def counted(session_id: str, state: Any, action: str) -> Any:
        sessions.append(session_id)
        return step(session_id, state, action)

    setattr(env, "_step_episode", counted)  # noqa: B010
    answers = _watched(env, "_format_answer")
    rollouts = play_in_turn(env, tasks, random_player(context.seed))
    batch = env.run_trial(tasks, ScriptedAgent(agent_texts(rollouts[0]) or [""]))
    played = [episode.actions for r in batch.rollouts for episode in r.episodes]
    if any(one.done for actions in played for one in actions[:-1]):
        raise Failed("an episode continues after done")
    recorded = sum(len(taken(rollout)) for rollout in [*rollouts, *batch.rollouts])
    if len(sessions) != recorded and not any(rollout.failed for rollout in batch.rollouts):
        raise Failed(f"the environment took {len(sessions)} steps, but {recorded} are recorded")
    longest = max(len(e.actions) for rollout in rollouts for e in rollout.episodes)
    stops = sorted({e.stop_reason for rollout in rollouts for e in rollout.episodes})
    limit = env.config.max_steps_per_episode
    text = f"longest {longest} of {limit} steps; ended by {', '.join(stops)}"
    return Passed(text, tuple(_UNANSWERED.format(error) for error in _first_raised(answers)))


_UNANSWERED = (
    "an episode's last action got no answer, because _format_answer, by default _format_prompt in "
    "the final state, raised {}"
)


_FILES = "/proc/self/fd"


def clean_up(context: Context) -> Passed:
    """Episodes that are over, cut or abandoned leave no thread and no file open."""
    tasks = context.tasks(6, most=4)
    env = context.make(None)
    endings = _watched(env, "_end_episode")
    _play(env, tasks, context.seed)  # what is opened once may stay open
    before = _open()
    episodes = _play(env, tasks, context.seed)
    left = {name: now - before[name] for name, now in _open().items()}
    for raised in _first_raised(endings):
        raise Failed(f"_end_episode raised {raised}"[:300])
    # A few more than before may have other reasons; a leak grows with every episode.
    leaks = [f"{count} more {name}" for name, count in left.items() if count >= episodes]
    if leaks:
        raise Failed(f"after {episodes} episodes, {' and '.join(leaks)} were open")
    return Passed(f"{len(endings)} episodes ended, and left nothing open")


def _watched(env: MultistepEnv, name: str) -> list[BaseException | None]:
    """What each call of a method of this object will have raised, or None."""
    outcomes: list[BaseException | None] = []
    method = getattr(env, name)

    def watched(*args: Any) -> Any:
        try:
            result = method(*args)
        except BaseException as error:
            outcomes.append(error)
            raise
        outcomes.append(None)
        return result

    setattr(env, name, watched)
    return outcomes


def _first_raised(outcomes: Sequence[BaseException | None]) -> list[str]:
    """The first error by its name, if there is one."""
    return [named_error(error) for error in outcomes if error is not None][:1]


def _play(env: MultistepEnv, tasks: Sequence[Task], seed: int) -> int:
    """Play each task to the end, and stop it after the first prompt in two ways; returns how many
    trials that are."""
    played = len(play_in_turn(env, tasks, random_player(seed)))
    if plays_episodes(env):
        return played
    for task in tasks:
        SteppedTrial(env, task).cut("cut")
        SteppedTrial(env, task).close()
    return played + 2 * len(tasks)


def _open() -> dict[str, int]:
    gc.collect()
    counts = {"threads": threading.active_count()}
    if os.path.isdir(_FILES):
        counts["files or connections"] = len(os.listdir(_FILES))
    return counts
