"""Playing tasks: the public ways in, and how trials of a batch get their seeds and places."""

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.episode import reflect
from agentsgym.envs.rows import EnvPool, check_row, pool_of
from agentsgym.envs.seat import take_seat
from agentsgym.envs.trial import Trial, TrialSpec, session_seed
from agentsgym.rollout.drive import drive, is_engine_agent
from agentsgym.rollout.remote import hosted
from agentsgym.rollout.scheduler import Job, Scheduler
from agentsgym.types import Agent, AllowImports, AllowPaths, Rollout, RolloutBatch, pad_id


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
    depends on (`seed`, its row's number, its number in the group) alone. Raises ValueError for a
    malformed row, UnknownEnvironment or ConfigError before anything is played.
    """
    if num_rollouts < 1:
        raise ValueError(f"num_rollouts must be at least 1, got {num_rollouts}")
    places = [
        Place(row, group, index, session_seed(seed, group, index))
        for group, row in enumerate(rows)
        for index in range(num_rollouts)
    ]
    tokenizer = agent.engine.tokenizer if is_engine_agent(agent) else None
    pool = pool_of(envs, tokenizer, allow_imports, allow_paths)
    rollouts = play(places, agent, pool, max_rollout_tokens=max_rollout_tokens)
    return RolloutBatch(rollouts, pad_token_id=pad_id(tokenizer), all_steps=all_steps)


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
    tasks: Sequence[Mapping[str, Any]],
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
        for group, task in enumerate(tasks)
        for index in range(num_rollouts)
    ]
    rollouts = _play_trials(trials, agent)
    return RolloutBatch(rollouts, pad_token_id=pad_id(env.tokenizer), all_steps=all_steps)


def _spec(place: Place, task: Mapping[str, Any], max_rollout_tokens: int | None) -> TrialSpec:
    session_id = f"{place.group:05d}-{place.index:03d}-{place.seed:016x}"
    return TrialSpec(session_id, place.group, place.index, task, place.seed, max_rollout_tokens)


def _play_trials(trials: Sequence[tuple[MultistepEnv, TrialSpec]], agent: Agent) -> list[Rollout]:
    hosts = {id(env): hosted(env) for env, _ in trials}
    trials = [(hosts[id(env)], spec) for env, spec in trials]
    if not is_engine_agent(agent):
        return [_play_alone(env, spec, agent) for env, spec in trials]
    jobs = [
        Job(spec.session_id, Trial(env, spec), spec.group, env.blocking) for env, spec in trials
    ]
    return Scheduler(agent).play(jobs)


def _play_alone(env: MultistepEnv, spec: TrialSpec, agent: Agent) -> Rollout:
    """One trial of an agent that only has `get_action`, episode by episode."""
    trial = Trial(env, spec)
    env._open_sessions[spec.session_id] = trial.session
    try:
        for episode in range(env.config["episodes_per_trial"]):
            trial.begin_episode(episode)
            trial.keep_record(env._run_complete_episode(spec.session_id, agent))
            if trial.reflects_after(episode):
                seated = take_seat(agent, env, trial.session)
                trial.keep_reflection(drive(reflect(env, trial.session), seated, trial.session))
    except Exception:
        trial.fail(traceback.format_exc())
    finally:
        del env._open_sessions[spec.session_id]
    return trial.close()
