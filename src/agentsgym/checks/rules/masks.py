"""The check that the agent-token masks cover exactly the agent's text."""

from agentsgym.agents import ScriptedAgent
from agentsgym.checks.context import Context
from agentsgym.checks.players import RandomPlayer
from agentsgym.checks.playing import play_alone
from agentsgym.checks.records import last_line
from agentsgym.checks.report import Finding
from agentsgym.checks.tokens import byte_tokenizer
from agentsgym.envs.base import MultistepEnv
from agentsgym.types import Rollout

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
    for row in rollout.rows:
        lengths = {len(row.token_ids), len(row.agent_token_mask), len(row.per_token_rewards)}
        if len(lengths) > 1:
            return f"ids, mask and rewards have different lengths: {sorted(lengths)}"
        stray = [
            r
            for r, m in zip(row.per_token_rewards, row.agent_token_mask, strict=True)
            if not m and r
        ]
        if stray:
            return f"{len(stray)} rewards are on tokens that are not the agent's"
    masked = [
        token
        for row in rollout.rows
        for token, mask in zip(row.token_ids, row.agent_token_mask, strict=True)
        if mask
    ]
    said = "".join(_said(env, rollout))
    assert env.tokenizer is not None
    decoded = env.tokenizer.decode(masked)
    if decoded == said:
        return None
    return f"the masked tokens say {decoded[:80]!r}, the agent said {said[:80]!r}"


def _said(env: MultistepEnv, rollout: Rollout) -> list[str]:
    """The agent's messages, each once: with `carry="full"` the conversation of an episode begins
    with that of the episode before."""
    goes_on = env.config["carry"] == "full"
    said, known = [], 0
    for episode in rollout.episodes:
        new = episode.messages[known:]
        said += [message["content"] for message in new if message["role"] == "assistant"]
        known = len(episode.messages) if goes_on else 0
    return said
