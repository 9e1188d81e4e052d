"""Playing tasks: the public ways in, and how trials of a batch get their seeds and places."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import EnvPool, TaskRow, check_row, plays, pool_of
from agentsgym.rollout.drive import drive, is_engine_agent, tokenizer_of
from agentsgym.rollout.episode import reflect
from agentsgym.rollout.failures import last_line
from agentsgym.rollout.scheduler import Job, Scheduler
from agentsgym.rollout.session import FAULTS
from agentsgym.rollout.session_view import agent_for
from agentsgym.rollout.trial import Trial, TrialSpec, session_seed
from agentsgym.rollout.workers.env import hosted
from agentsgym.types import (
    Agent,
    AllowImports,
    AllowPaths,
    Rollout,
    RolloutBatch,
    Tokenizer,
    pad_id,
)
from agentsgym.types.plain import short_repr

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """One rollout to play: its task row, its group and its number in the group, its seed."""

    row: Mapping[str, Any]
    group: int
    index: int
    seed: int


def run(
    rows: Sequence[Mapping[str, Any]],
    agent: Agent,
    num_rollouts: int = 1,
    *,
    envs: EnvPool | Iterable[MultistepEnv] | None = None,
    seed: int = 0,
    max_rollout_tokens: int | None = None,
    all_steps: bool = False,
    allow_imports: AllowImports = False,
    allow_paths: AllowPaths = (),
) -> RolloutBatch:
    """Play `num_rollouts` trials on each row's task, environments mixed, task by task.

    `rows` follow the dataset schema. `envs` holds environment objects that play their rows, or a
    pool that keeps environments across calls (others are made here, with the tokenizer of the
    agent's engine if it has one). The noise of a rollout
    depends on (`seed`, its row's number, its number in the group) alone: equal seeds give equal
    rollouts with equal session ids. Where every rollout fails, a warning is logged. No row of
    tokens gets longer than `max_rollout_tokens` (None: no bound): an action of an engine is cut
    there, and what else does not fit (an observation, a text agent's action) is left out; it ends
    the episode with the stop reason "max_rollout_tokens". Raises ValueError for a
    malformed row, UnknownEnvironment or ConfigError before anything is played.
    """
    if num_rollouts < 1:
        raise ValueError(f"num_rollouts must be at least 1, got {num_rollouts}")
    places = [
        Place(row, group, index, session_seed(seed, group, index))
        for group, row in enumerate(rows)
        for index in range(num_rollouts)
    ]
    pool = pool_of(envs, tokenizer_of(agent), allow_imports, allow_paths)
    rollouts = play(places, agent, pool, max_rollout_tokens=max_rollout_tokens)
    tokenizer = pool.get(rows[0]).tokenizer if rows else None
    return _batch(rollouts, tokenizer, all_steps)


def play(
    places: Sequence[Place],
    agent: Agent,
    envs: EnvPool,
    *,
    max_rollout_tokens: int | None = None,
) -> list[Rollout]:
    """Play each place and return the rollouts in their order."""
    trials = []
    for number, place in enumerate(places):
        row = check_row(place.row, number)
        spec = _spec(place, row["task_data"], max_rollout_tokens)
        trials.append((envs.get(row), spec))
    return _play_trials(trials, agent)


def run_env(
    env: MultistepEnv,
    tasks: Iterable[Mapping[str, Any]],
    agent: Agent,
    num_rollouts: int,
    *,
    seed: int,
    all_steps: bool,
) -> RolloutBatch:
    """Play an environment that exists already (`MultistepEnv.run_trial`)."""
    if num_rollouts < 1:
        raise ValueError(f"num_rollouts must be at least 1, got {num_rollouts}")
    trials = [
        (env, _spec(Place({}, group, index, session_seed(seed, group, index)), task, None))
        for group, task in enumerate(tasks_of(env, tasks))
        for index in range(num_rollouts)
    ]
    return _batch(_play_trials(trials, agent), env.tokenizer, all_steps)


def tasks_of(env: MultistepEnv, given: Any) -> list[Mapping[str, Any]]:
    """The tasks of a list of tasks or of dataset rows.

    Raises TypeError where it is no list of dicts, ValueError for a row that the environment does
    not play.
    """
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        raise TypeError(
            f"task_data_list must be a list of tasks or dataset rows, got {short_repr(given)}"
        )
    return [_task(env, item, number) for number, item in enumerate(given)]


def _task(env: MultistepEnv, item: Any, number: int) -> Mapping[str, Any]:
    if not isinstance(item, Mapping):
        raise TypeError(f"task {number} must be a dict, got {short_repr(item)}")
    if item.keys() != TaskRow.__required_keys__:
        return item
    row = check_row(item, number)
    if not plays(env, row["env_class_path"], row["env_config"]):
        raise ValueError(
            f"row {number} is a task of {row['env_class_path']} with env_config "
            f"{short_repr(row['env_config'])}, not of this {env.name} with "
            f"{short_repr(env.env_config)}; agentsgym.rollout.run plays rows of any environments"
        )
    return row["task_data"]


def _batch(
    rollouts: Sequence[Rollout], tokenizer: Tokenizer | None, all_steps: bool
) -> RolloutBatch:
    if rollouts and all(rollout.failed for rollout in rollouts):
        logger.warning(
            "every rollout failed (%d); the first with: %s (batch.rollouts[0].error has all of it)",
            len(rollouts),
            last_line(rollouts[0].error or ""),
        )
    return RolloutBatch(rollouts, pad_token_id=pad_id(tokenizer), all_steps=all_steps)


def _spec(place: Place, task: Mapping[str, Any], max_rollout_tokens: int | None) -> TrialSpec:
    session_id = f"{place.group:05d}-{place.index:03d}-{place.seed:016x}"
    return TrialSpec(session_id, place.group, place.index, task, place.seed, max_rollout_tokens)


def _play_trials(trials: Sequence[tuple[MultistepEnv, TrialSpec]], agent: Agent) -> list[Rollout]:
    hosts = {id(env): hosted(env) for env, _ in trials}
    trials = [(hosts[id(env)], spec) for env, spec in trials]
    if not is_engine_agent(agent):
        return [_play_alone(env, spec, agent) for env, spec in trials]
    jobs = [
        Job(spec.session_id, Trial(env, spec), spec.group, env.blocking)
        for env, spec in trials
        if not _plays_episodes(env)
    ]
    together = iter(Scheduler(agent).play(jobs))
    return [
        _play_alone(env, spec, agent) if _plays_episodes(env) else next(together)
        for env, spec in trials
    ]


def _plays_episodes(env: MultistepEnv) -> bool:
    """Whether an environment has a `_run_complete_episode` of its own, which is then called."""
    overrides = type(env)._run_complete_episode is not MultistepEnv._run_complete_episode
    return overrides or "_run_complete_episode" in vars(env)


def _play_alone(env: MultistepEnv, spec: TrialSpec, agent: Agent) -> Rollout:
    """One trial, episode by episode: of an agent that only has `get_action`, or of an environment
    that plays its episodes in its own way."""
    trial = Trial(env, spec)
    env._open_sessions[spec.session_id] = trial.session
    try:
        for episode in range(env.config["episodes_per_trial"]):
            trial.begin_episode(episode)
            trial.keep_record(env._run_complete_episode(spec.session_id, agent))
            if trial.reflects_after(episode):
                player = agent_for(agent, env, trial.session)
                trial.keep_reflection(drive(reflect(env, trial.session), player, trial.session))
    except FAULTS as error:
        trial.fail(error)
    finally:
        del env._open_sessions[spec.session_id]
        env.active_states.pop(spec.session_id, None)  # also where the run is interrupted
        if is_engine_agent(agent):
            agent.engine.release([spec.session_id])
    return trial.close()
