"""The default of `MultistepEnv._run_complete_episode`: one episode as the specification's dict."""

from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.drive import drive
from agentsgym.rollout.episode import play_episode
from agentsgym.rollout.reward_placement import place
from agentsgym.rollout.session import Session
from agentsgym.rollout.session_view import agent_for
from agentsgym.tokens import Transcript
from agentsgym.types import Agent, Episode, copy_message


def run_complete_episode(env: MultistepEnv, session_id: str, agent: Agent) -> dict[str, Any]:
    """Play the episode whose state is `env.active_states[session_id]` to its end."""
    session = env._open_sessions.get(session_id) or Session(
        session_id, {}, Transcript(env.codec), trial=env.trial_info()
    )
    first_row = len(session.transcript.rows)
    episode = drive(play_episode(env, session), agent_for(agent, env, session), session)
    return _episode_dict(env, session, episode, first_row)


def _episode_dict(
    env: MultistepEnv, session: Session, episode: Episode, first_row: int
) -> dict[str, Any]:
    goes_on = session.episode > 0 and env.config["carry"] == "full"
    rows = session.transcript.rows[first_row - 1 if goes_on and first_row else first_row :]
    ids = list(rows[-1].token_ids) if rows else []
    spans = [s for s in rows[-1].spans if s.episode == episode.index] if rows else []
    rewards = place(
        len(ids),
        spans,
        [episode.steps[span.step] for span in spans],
        placement=env.config["reward_placement"],
        final_reward=env.config["final_reward"],
        episode_reward=episode.reward,
    )
    return {
        "full_token_ids": ids,
        "full_attention_mask": [1] * len(ids),
        "agent_token_mask": list(rows[-1].mask) if rows else [],
        "per_token_rewards": rewards,
        "final_reward": episode.reward,
        "final_completion_messages": [copy_message(m) for m in episode.messages],
        "episode": episode,
    }
