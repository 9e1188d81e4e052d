"""The check that the agent-token masks cover exactly the agent's text."""

import numpy as np

from agentsgym.agents import ScriptedAgent
from agentsgym.checks.context import Context
from agentsgym.checks.players import RandomPlayer
from agentsgym.checks.playing import play_alone
from agentsgym.checks.records import last_line
from agentsgym.checks.report import Finding
from agentsgym.checks.tokens import byte_tokenizer
from agentsgym.envs.base import MultistepEnv
from agentsgym.types import Rollout
from agentsgym.types.reward_placement import per_token_rewards

_NAME = "masks"


def masks(context: Context) -> Finding:
    """The masked tokens decode to the actions and nothing else; only they carry rewards.

    Played with a tokenizer that has a chat template and with one that has none.
    """
    tasks = context.tasks(3, most=6)
    scripts = [
        record.actions or ("",)
        for record in play_alone(context.make(None), tasks, RandomPlayer(context.seed))
    ]
    tokens = agent_tokens = 0
    for chat in (True, False):
        env = context.make(byte_tokenizer(chat))
        for task, script in zip(tasks, scripts, strict=True):
            rollout = env.run_trial([task], ScriptedAgent(script)).rollouts[0]
            problem = _problem(env, rollout)
            if problem:
                return Finding(_NAME, False, problem)
            tokens += sum(len(row.token_ids) for row in rollout.rows)
            agent_tokens += rollout.agent_tokens
    text = f"{agent_tokens} agent tokens of {tokens} in {2 * len(tasks)} trials"
    return Finding(_NAME, True, text)


def _problem(env: MultistepEnv, rollout: Rollout) -> str | None:
    if rollout.error:
        return f"a trial raised: {last_line(rollout.error)}"
    for row, rewards in zip(rollout.rows, per_token_rewards(rollout), strict=True):
        if len(rewards) != len(row.token_ids):
            return f"a row has {len(row.token_ids)} ids and {len(rewards)} rewards"
        stray = np.count_nonzero(rewards[row.agent_token_mask == 0])
        if stray:
            return f"{stray} rewards are on tokens that are not the agent's"
    masked = [
        token for row in rollout.rows for token in row.token_ids[row.agent_token_mask == 1].tolist()
    ]
    said = "".join(
        message["content"]
        for episode in rollout.episodes
        for message in episode.messages
        if message["role"] == "assistant"
    )
    assert env.tokenizer is not None
    decoded = env.tokenizer.decode(masked)
    if decoded == said:
        return None
    return f"the masked tokens say {decoded[:80]!r}, the agent said {said[:80]!r}"
