"""The check that `done` ends an episode and that the limits are kept."""

from collections.abc import Sequence
from typing import Any

from agentsgym.agents import ScriptedAgent
from agentsgym.checks.context import Context
from agentsgym.checks.players import Always, RandomPlayer
from agentsgym.checks.playing import play_alone
from agentsgym.checks.records import Record
from agentsgym.checks.report import Finding
from agentsgym.envs.base import MultistepEnv
from agentsgym.types import Rollout

_NAME = "ending"


class Watch:
    """Counts every step that an environment takes, and those after the end."""

    def __init__(self, env: MultistepEnv) -> None:
        self.steps = 0
        self.after_done = 0
        self._over: set[str] = set()
        self._begin, self._step = env._initialize_episode, env._step_episode
        setattr(env, "_initialize_episode", self._watched_begin)  # noqa: B010
        setattr(env, "_step_episode", self._watched_step)  # noqa: B010

    def _watched_begin(self, session_id: str, task_data: dict[str, Any]) -> Any:
        self._over.discard(session_id)
        return self._begin(session_id, task_data)

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
        return Finding(_NAME, False, f"{watch.after_done} steps were played after done")
    early = _early(batch.rollouts)
    if early:
        return Finding(_NAME, False, early)
    if watch.steps != recorded and not any(rollout.failed for rollout in batch.rollouts):
        text = f"the environment took {watch.steps} steps, but {recorded} are recorded"
        return Finding(_NAME, False, text)
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
        return Finding(_NAME, False, f"an episode took {longest} steps, the limit is {limit}")
    allowed = config.error_allowance
    for record in silent:
        if all(record.malformed) and record.steps > (allowed + 1) * episodes + episodes:
            text = f"{record.steps} malformed actions were taken, the limit is {allowed}"
            return Finding(_NAME, False, text)
    stops = sorted({stop for record in [*records, *silent] for stop in record.stops})
    return Finding(_NAME, True, f"longest {longest} of {limit} steps; ended by {', '.join(stops)}")
