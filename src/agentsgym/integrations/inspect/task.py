"""Our environments as tasks of `inspect eval`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import anyio
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.event import ScoreEvent
from inspect_ai.log import transcript
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import LimitExceededError, registry_info, span

from agentsgym.envs import ConfigError, MultistepEnv, make, registered
from agentsgym.envs.dataset import tasks_of
from agentsgym.evaluation.metrics import record
from agentsgym.integrations.inspect.log import episode_facts
from agentsgym.rollout.failures import last_line
from agentsgym.rollout.stepping import SteppedTrial
from agentsgym.types import Rollout, Trust, with_modules_of
from agentsgym.types.names import import_from_here
from agentsgym.types.text import plain

_PACKAGE = "agentsgym/"
STORED = "agentsgym"
"""The key of a sample's store under which the solver leaves what was played."""
LIMIT, FULL = "limit", "max_rollout_tokens"
"""Stop reasons: a limit of Inspect, a conversation that the model's context does not hold."""

_ROLES = {
    "system": ChatMessageSystem,
    "user": ChatMessageUser,
    "assistant": ChatMessageAssistant,
}


def env_task(
    env: str,
    env_config: Mapping[str, Any] | None = None,
    tasks: Literal["eval", "train"] = "eval",
    trust: Trust = False,
) -> Task:
    """The environment as a task: a sample per task of its held-out or training dataset. The epochs
    of a sample are the rollouts of its group.

    Each sample is scored with `reward`, the mean reward of the scored episodes, and `win`, where
    the environment tells it. A sample that fails is an error and ends no other.

    Raises ConfigError for a setting that the environment does not have, UnknownEnvironment for a
    name that is not registered; `trust` as for `make`.
    """
    if tasks not in ("eval", "train"):
        raise ConfigError(f"tasks must be eval or train, not {tasks!r}")
    made = make(env, None, dict(env_config or {}), trust=trust)
    rows = enumerate(tasks_of(made, tasks))
    samples = [_sample(made, row, number, tasks) for number, row in rows]
    return Task(
        dataset=MemoryDataset(samples, name=f"{made.name}-{tasks}"),
        solver=player(made),
        scorer=[reward(), win()],
        fail_on_error=False,
        name=f"{_PACKAGE}{made.name}",  # so are its logs called
        metadata={"env": made.class_path, "env_config": plain(made.env_config)},
    )


def _sample(env: MultistepEnv, row: Mapping[str, Any], number: int, tasks: str) -> Sample:
    task = row["task_data"]
    return Sample(
        id=number,
        input=f"{env.name}, task {number} of {tasks}",
        target=str(task.get("solution", "")),
        metadata={"task_data": plain(task)},
    )


# -- playing ------------------------------------------------------------------------------------


def _player(env: MultistepEnv) -> Solver:
    """Plays the sample's task to its end, or to a limit."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        begin = partial(
            SteppedTrial,
            env,
            state.metadata["task_data"],
            group=int(state.sample_id),
            index=state.epoch - 1,
        )
        with await _run(env, begin) as trial:
            try:
                await _play(env, trial, state, generate)
            except (LimitExceededError, anyio.get_cancelled_exc_class()):
                _tell(state, trial.cut(LIMIT))
                raise
            _tell(state, trial.rollout)
        if trial.rollout.error is not None:
            error = RuntimeError(last_line(trial.rollout.error))
            error.add_note(trial.rollout.error)
            raise error
        return state

    return solve


player: Callable[[MultistepEnv], Solver] = solver(name="player")(_player)


async def _play(
    env: MultistepEnv, trial: SteppedTrial, state: TaskState, generate: Generate
) -> None:
    while not trial.over:
        facts = trial.facts
        free = "" if facts.scored else " (free shot)"
        async with span(f"episode {facts.episode + 1}{free}"):
            while not trial.over and trial.facts.episode == facts.episode:
                await _turn(env, trial, state, generate)


async def _turn(
    env: MultistepEnv, trial: SteppedTrial, state: TaskState, generate: Generate
) -> None:
    kept = [] if trial.facts.new_conversation else state.messages
    state.messages = [*kept, *map(_message, trial.new_messages)]
    after = await generate(state)
    state.messages, state.output = after.messages, after.output
    if state.output.stop_reason == "model_length":
        trial.cut(FULL)
        return
    value = await _run(env, partial(trial.act, state.output.completion))
    score = Score(value=value, explanation="reward of the step", metadata=plain(trial.info))
    transcript()._event(ScoreEvent(score=score, intermediate=True, scorer="reward"))


async def _run(env: MultistepEnv, call: Callable[[], Any]) -> Any:
    """Call in a thread if the environment may wait; else here, as its trials share one thread."""
    if env.blocking:
        return await anyio.to_thread.run_sync(call)
    return call()


def _message(message: dict[str, Any]) -> ChatMessage:
    return _ROLES[message["role"]](content=message["content"])


def _tell(state: TaskState, rollout: Rollout) -> None:
    """Leave what was played in the sample's store, which its log shows."""
    facts = {
        "reward": plain(rollout.final_reward),
        "win": record(rollout).win,
        "episodes": [episode_facts(episode) for episode in rollout.episodes],
        "step_rewards": [
            [plain(step.reward) for step in episode.steps] for episode in rollout.episodes
        ],
    }
    state.store.set(STORED, facts)


# -- scores -------------------------------------------------------------------------------------


def _stored(name: str) -> Callable[[TaskState, Target], Awaitable[Score]]:
    async def score(state: TaskState, target: Target) -> Score:
        facts = state.store.get(STORED, {})
        value = facts.get(name)
        answer = state.output.completion if state.output.choices else ""
        return Score(value=float("nan") if value is None else float(value), answer=answer)

    return score


def _scorer(name: str) -> Callable[[], Scorer]:
    metrics: Sequence[Any] = [mean(), stderr()]
    made: Callable[[], Scorer] = scorer(metrics=metrics, name=name)(partial(_stored, name))
    return made


reward = _scorer("reward")
win = _scorer("win")


def _by_name(name: str) -> Callable[..., Task]:
    def make_task(tasks: Any = "eval", **env_config: Any) -> Task:
        return env_task(name, env_config, tasks)

    make_task.__doc__ = f"{name}; settings of the environment are arguments."
    return _registered(name, make_task)


def _by_path(path: str, tasks: Any = "eval", **env_config: Any) -> Task:
    """An environment of the user's own: `-T path=my_module.MyEnv`, a module in this directory."""
    import_from_here(path)
    return env_task(path, env_config, tasks, trust=with_modules_of(False, path))


def _registered(name: str, make_task: Callable[..., Task]) -> Callable[..., Task]:
    """Inspect puts the package's name first only where it sees that the package is installed."""
    made: Callable[..., Task] = task(name=name)(make_task)
    if not registry_info(made).name.startswith(_PACKAGE):
        made = task(name=f"{_PACKAGE}{name}")(make_task)
    return made


TASKS = {name: _by_name(name) for name in registered()} | {"env": _registered("env", _by_path)}
"""The tasks by their names after `agentsgym/`."""
