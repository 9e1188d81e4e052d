"""The checks of tasks and masks, and the speed."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentsgym.agents import ScriptedAgent
from agentsgym.checks.context import Context, Failed, Passed
from agentsgym.checks.playing import agent_texts, always, play_in_turn, random_player, replay, taken
from agentsgym.checks.tokens import byte_tokenizer
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import check_row
from agentsgym.rollout.failures import last_line
from agentsgym.types import Message, Rollout
from agentsgym.types.reward_placement import per_token_rewards


def tasks(context: Context) -> Passed:
    """Both datasets exist, their rows name this environment, and no task is in both.

    An environment with a single task is accepted: both datasets then contain that task.
    """
    train, held_out = context.train, context.held_out
    if train is None or held_out is None:
        missing = "get_train_dataset" if train is None else "get_eval_dataset"
        if context.extra:
            return Passed(f"{len(context.extra)} given; {missing} is not defined")
        raise Failed(f"{missing} is not defined")
    _check_rows(context.env)
    return _overlap(train, held_out)


def _overlap(train: Sequence[Mapping[str, Any]], held_out: Sequence[Mapping[str, Any]]) -> Passed:
    if not train or not held_out:
        raise Failed(f"there are no {'evaluation' if train else 'training'} tasks")
    first, second = _keys(train), _keys(held_out)
    both = first & second
    if len(first) == 1 and first == second:
        return Passed("one task: every seed gives the same one")
    if both:
        shared = f"{len(both)} of {len(second)} evaluation tasks are training tasks"
        raise Failed(f"{shared}: {min(both)[:100]}")
    repeated = len(train) - len(first)
    warnings = (f"{repeated} training tasks are duplicates",) if repeated else ()
    return Passed(f"{len(train)} training tasks, {len(held_out)} other evaluation tasks", warnings)


def _keys(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {json.dumps(row, sort_keys=True, default=repr) for row in rows}


def _check_rows(env: MultistepEnv) -> None:
    """Raise Failed with the first problem in the datasets' first rows."""
    for dataset in (env.get_train_dataset(), env.get_eval_dataset()):
        for number, row in enumerate(dataset.select(range(min(4, len(dataset))))):
            try:
                checked = check_row(row, number)
            except ValueError as error:
                raise Failed(str(error)) from error
            if checked["env_class_path"] != env.class_path:
                named = checked["env_class_path"]
                raise Failed(f"row {number} names {named!r}, not {env.class_path!r}")
            if checked["env_config"] != env.env_config:
                raise Failed(f"row {number} has a different env_config than the environment")


def masks(context: Context) -> Passed:
    """The masked tokens decode to the actions and nothing else; only they carry rewards.

    Played with a tokenizer that has a chat template and, without tools, with one that has none.
    """
    tools = context.env.offers_tools
    tasks = context.tasks(3, most=6)
    scripts = [
        agent_texts(rollout) or [""]
        for rollout in play_in_turn(context.make(None), tasks, random_player(context.seed))
    ]
    tokens = agent_tokens = 0
    ways = (True,) if tools else (True, False)
    for chat in ways:
        env = context.make(byte_tokenizer(chat, tools))
        for task, script in zip(tasks, scripts, strict=True):
            rollout = env.run_trial([task], ScriptedAgent(script)).rollouts[0]
            _check_masks(env, rollout)
            tokens += sum(len(row.token_ids) for row in rollout.rows)
            agent_tokens += rollout.agent_tokens
    return Passed(f"{agent_tokens} agent tokens of {tokens} in {len(ways) * len(tasks)} trials")


def _check_masks(env: MultistepEnv, rollout: Rollout) -> None:
    if rollout.error:
        raise Failed(f"a trial raised: {last_line(rollout.error)}")
    for row, rewards in zip(rollout.rows, per_token_rewards(rollout), strict=True):
        if len(rewards) != len(row.token_ids):
            raise Failed(f"a row has {len(row.token_ids)} ids and {len(rewards)} rewards")
        stray = np.count_nonzero(rewards[row.agent_token_mask == 0])
        if stray:
            raise Failed(f"{stray} rewards are on tokens that are not the agent's")
    masked = [
        token for row in rollout.rows for token in row.token_ids[row.agent_token_mask == 1].tolist()
    ]
    spoken = "".join(
        _spoken(env, message)
        for episode in rollout.episodes
        for message in episode.messages
        if message.role == "assistant"
    )
    assert env.tokenizer is not None
    decoded = env.tokenizer.decode(masked)
    if decoded != spoken:
        raise Failed(f"the masked tokens say {decoded[:80]!r}, the agent said {spoken[:80]!r}")


def _spoken(env: MultistepEnv, message: Message) -> str:
    """What a text agent's tokens say: its words, or the template's form of its calls."""
    if not message.tool_calls:
        return message.content
    assert env.tokenizer is not None and env.codec is not None
    return env.tokenizer.decode(list(env.codec.encode_answer(message)))


_SLOW = 20.0


def speed(context: Context) -> Passed:
    """Steps per second on one core, including the start of episodes. Never fails."""
    tasks = context.tasks(4)
    env = context.make(None)
    rollouts = play_in_turn(env, tasks, random_player(context.seed, nonsense=0.0))
    again = replay([agent_texts(rollout) for rollout in rollouts])
    began = time.perf_counter()
    steps = sum(len(taken(rollout)) for rollout in play_in_turn(env, tasks, again))
    rate = steps / max(time.perf_counter() - began, 1e-9)
    began = time.perf_counter()
    play_in_turn(env, tasks, always(""))
    begun = (time.perf_counter() - began) / len(tasks)
    warnings = (f"fewer than {_SLOW:g} steps per second",) if rate < _SLOW else ()
    text = f"{rate:,.0f} steps/s; {begun * 1000:.2f} ms for an episode of empty actions"
    numbers = {"steps_per_second": rate, "empty_episode_seconds": begun}
    return Passed(text, warnings, numbers)
