"""The placement of rewards on agent tokens in `per_token_rewards` (and nowhere else)."""

from dataclasses import replace

import numpy as np

from agentsgym.types.records import Episode, Rollout
from agentsgym.types.rows import Floats, Row, chosen

REWARD_PLACEMENTS = {
    "spread": "evenly, r/n on each of the step's n agent tokens",
    "broadcast": "in full on each of the step's agent tokens",
    "last_token": "in full on the step's last agent token",
}
"""Values of the key `reward_placement` of an `env_config`: how a step's reward is put on its agent
tokens."""

FINAL_REWARDS = {
    "last_step": "each step's own reward; `_calculate_reward` changes that of the last step",
    "repeat": "for each step, the reward of its whole episode",
    "spread": "the episode's reward, evenly over all agent tokens of the row",
}
"""Values of the key `final_reward` of an `env_config`: which reward a step's tokens show."""


def place_rewards(row: Row, episode: Episode, placement: str, final_reward: str) -> Floats:
    """The rewards on the T tokens of one row for those of its steps that are actions of `episode`:
    float64 of shape (T,), 0.0 on all other tokens, those that were forced among them.

    `placement` is a name in `REWARD_PLACEMENTS`, `final_reward` one in `FINAL_REWARDS`. With
    "last_step", a step's own `token_rewards` (one per token of its answer) override `placement`;
    the rest of the step's reward goes to its last agent token.
    """
    rewards = np.zeros(len(row.token_ids))
    spans = [
        span
        for span in row.spans
        if span.episode == episode.index and episode.steps[span.step].kind == "action"
    ]
    places = [
        (span, at) for span, at in zip(spans, chosen(spans, row.supports), strict=True) if len(at)
    ]
    total = sum(len(at) for _, at in places)
    for span, at in places:
        step, own = episode.steps[span.step], final_reward == "last_step"
        reward = step.reward if own else episode.reward
        if final_reward == "spread":
            rewards[at] = reward / total
        elif own and step.token_rewards is not None:
            rewards[at] = np.asarray(step.token_rewards)[at - span.start]
            rewards[at[-1]] += reward - sum(rewards[at].tolist())
        elif placement == "last_token":
            rewards[at[-1]] = reward
        else:
            rewards[at] = reward / len(at) if placement == "spread" else reward
    return rewards


def per_token_rewards(rollout: Rollout) -> list[Floats]:
    """The rewards on the tokens of each row, float64 of shape (T,): 0.0 off agent tokens and in a
    failed rollout. In free shots only the penalties count."""
    return [
        _row_rewards(rollout, row)
        if row.given_rewards is None or rollout.failed
        else row.given_rewards
        for row in rollout.rows
    ]


def _row_rewards(rollout: Rollout, row: Row) -> Floats:
    """The rewards on one row's tokens, as they follow from the steps."""
    rewards = np.zeros(len(row.token_ids))
    placement, final = rollout.reward_placement, rollout.final_reward_placement
    for episode in () if rollout.failed else rollout.episodes:
        if episode.index in row.episodes:
            counted = episode if episode.score_weight else penalties(episode)
            rewards += place_rewards(row, counted, placement, final)
    return rewards


def penalties(episode: Episode) -> Episode:
    """The episode as if its malformed actions had lost their penalties, and nothing been earned."""
    steps = tuple(
        replace(step, reward=0.0 - step.penalty, token_rewards=None) for step in episode.steps
    )
    return replace(episode, steps=steps, reward=sum(step.reward for step in steps))
