"""The public functions that play tasks, and the requests that they make of dataset rows."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import EnvPool, TaskRow, check_row, plays, pool_of
from agentsgym.rollout.drive import OnRollout, is_engine_agent, play_alone, tokenizer_of
from agentsgym.rollout.failures import last_line
from agentsgym.rollout.processes.env import hosted
from agentsgym.rollout.scheduler import Assignment, Scheduler
from agentsgym.types import (
    Agent,
    Rollout,
    RolloutBatch,
    RolloutRequest,
    Tokenizer,
    Trust,
    session_seed,
)
from agentsgym.types.batch import pad_id
from agentsgym.types.text import short_repr

logger = logging.getLogger(__name__)


def run(
    rows: Sequence[Mapping[str, Any]],
    agent: Agent,
    num_rollouts: int = 1,
    *,
    envs: EnvPool | Iterable[MultistepEnv] | None = None,
    seed: int = 0,
    max_rollout_tokens: int | None = None,
    all_steps: bool = False,
    trust: Trust = False,
) -> RolloutBatch:
    """Play `num_rollouts` trials on each row's task, with mixed environments, task by task.

    `rows` follow the dataset schema. `envs` are environment objects that play their rows, or a
    pool that keeps environments across calls (others are made here, with the tokenizer of the
    agent's engine if it has one). The noise of a rollout depends only on (`seed`, its row's number,
    its number in the group): equal seeds give equal rollouts with equal session ids. If every
    rollout fails, a warning is logged. No row of tokens becomes longer than `max_rollout_tokens`
    (None: no limit): an engine's action is cut there, and an observation or a text agent's action
    that does not fit is dropped and ends the episode with the stop reason "max_rollout_tokens".
    Raises ValueError for a malformed row, and UnknownEnvironment or ConfigError, before any play.
    """
    checked = [check_row(row, number) for number, row in enumerate(rows)]
    pool = pool_of(envs, tokenizer_of(agent), trust)
    requests = _requests(checked, num_rollouts, seed, max_rollout_tokens)
    rollouts = play(requests, agent, pool)
    tokenizer = pool.get(rows[0]).tokenizer if rows else None
    return _batch(rollouts, tokenizer, all_steps)


def play(
    requests: Sequence[RolloutRequest],
    agent: Agent,
    envs: EnvPool,
    *,
    on_rollout: OnRollout | None = None,
) -> list[Rollout]:
    """Play each request and return the rollouts in their order.

    `on_rollout` is called with each rollout as soon as it is over, in no fixed order.
    """
    assignments = [Assignment(envs.of(r.env_class_path, r.env_config), r) for r in requests]
    return _play(assignments, agent, on_rollout)


def run_env(
    env: MultistepEnv,
    tasks: Iterable[Mapping[str, Any]],
    agent: Agent,
    num_rollouts: int,
    *,
    seed: int,
    all_steps: bool,
) -> RolloutBatch:
    """Play an existing environment object (`MultistepEnv.run_trial`). The tasks are those of the
    caller's own code, so they may name any file."""
    path, config = env.class_path, env.env_config
    rows = [
        {"env_class_path": path, "env_config": config, "task_data": task}
        for task in listed_tasks(env, tasks)
    ]
    requests = _requests(rows, num_rollouts, seed, None)
    trusted, env.trusts_tasks = env.trusts_tasks, True
    try:
        rollouts = _play([Assignment(env, r) for r in requests], agent)
    finally:
        env.trusts_tasks = trusted
    return _batch(rollouts, env.tokenizer, all_steps)


def _requests(
    rows: Sequence[Mapping[str, Any]],
    num_rollouts: int,
    seed: int,
    max_rollout_tokens: int | None,
) -> list[RolloutRequest]:
    """`num_rollouts` requests for each row, row by row."""
    if num_rollouts < 1:
        raise ValueError(f"num_rollouts must be at least 1, got {num_rollouts}")
    return [
        RolloutRequest.of(
            row,
            group,
            index,
            session_seed(seed, group, index),
            max_rollout_tokens=max_rollout_tokens,
        )
        for group, row in enumerate(rows)
        for index in range(num_rollouts)
    ]


def listed_tasks(env: MultistepEnv, tasks: Any) -> list[Mapping[str, Any]]:
    """The tasks of a list of tasks or of dataset rows.

    Raises TypeError if it is not a list of dicts, ValueError for a row that the environment does
    not play.
    """
    if isinstance(tasks, Mapping | str) or not isinstance(tasks, Iterable):
        raise TypeError(
            f"task_data_list must be a list of tasks or dataset rows, got {short_repr(tasks)}"
        )
    return [_task(env, item, number) for number, item in enumerate(tasks)]


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


def _play(
    assignments: Sequence[Assignment], agent: Agent, on_rollout: OnRollout | None = None
) -> list[Rollout]:
    envs = {id(one.env): one.env for one in assignments}
    hosts = {key: hosted(env) for key, env in envs.items()}  # each is packed once
    assignments = [one._replace(env=hosts[id(one.env)]) for one in assignments]
    if is_engine_agent(agent):
        return Scheduler(agent, on_rollout).play(assignments)
    return [play_alone(env, request, agent, on_rollout) for env, request, _ in assignments]
