"""The placement of rewards on agent tokens in `per_token_rewards` (and nowhere else)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agentsgym.types.names import table
from agentsgym.types.records import Episode, Floats, Rollout, Row, Step, StepSpan

OnTokens = Callable[[float, int], list[float]]
"""From a reward and a number of tokens, at least 1, to one reward per token."""


@dataclass(frozen=True, slots=True)
class RewardPlacement:
    """A value of the key `reward_placement`: how a step's reward is put on its agent tokens."""

    name: str
    on_tokens: OnTokens
    help: str


def _spread(reward: float, count: int) -> list[float]:
    return [reward / count] * count


def _broadcast(reward: float, count: int) -> list[float]:
    return [reward] * count


def _last_token(reward: float, count: int) -> list[float]:
    return [0.0] * (count - 1) + [reward]


REWARD_PLACEMENTS = table(
    RewardPlacement("spread", _spread, "evenly, r/n on each of the step's n agent tokens"),
    RewardPlacement("broadcast", _broadcast, "in full on each of the step's agent tokens"),
    RewardPlacement("last_token", _last_token, "in full on the step's last agent token"),
)
"""Values of the key `reward_placement` of an `env_config`."""

Placed = Iterator[tuple[StepSpan, list[float]]]
"""The rewards of each span's tokens."""


@dataclass(frozen=True, slots=True)
class FinalReward:
    """A value of the key `final_reward`: which reward is placed on the agent tokens of a step.

    `of_steps(spans, steps, episode_reward, on_tokens)` gives the rewards of each span's tokens.
    `on_every_step` says that each step shows its episode's reward.
    """

    name: str
    of_steps: Callable[[Sequence[StepSpan], Sequence[Step], float, OnTokens], Placed]
    help: str
    on_every_step: bool = False


def _own_rewards(
    spans: Sequence[StepSpan], steps: Sequence[Step], episode_reward: float, on_tokens: OnTokens
) -> Placed:
    for span, step in zip(spans, steps, strict=True):
        if step.token_rewards is not None:
            yield span, _given(step, step.token_rewards)
        elif span.length:
            yield span, on_tokens(step.reward, span.length)


def _given(step: Step, token_rewards: Sequence[float]) -> list[float]:
    """The environment's own per-token rewards; the rest of the step's reward goes to its last
    token."""
    rewards = list(token_rewards)
    if rewards:
        rewards[-1] += step.reward - sum(token_rewards)
    return rewards


def _repeated(
    spans: Sequence[StepSpan], steps: Sequence[Step], episode_reward: float, on_tokens: OnTokens
) -> Placed:
    for span in spans:
        if span.length:
            yield span, on_tokens(episode_reward, span.length)


def _over_all(
    spans: Sequence[StepSpan], steps: Sequence[Step], episode_reward: float, on_tokens: OnTokens
) -> Placed:
    total = sum(span.length for span in spans)
    for span in spans:
        if span.length:
            yield span, [episode_reward / total] * span.length


FINAL_REWARDS = table(
    FinalReward(
        "last_step",
        _own_rewards,
        "each step shows its own reward; `_calculate_reward` changes the last one",
    ),
    FinalReward("repeat", _repeated, "each step shows its episode's reward", on_every_step=True),
    FinalReward(
        "spread", _over_all, "the episode's reward, evenly over all agent tokens of the row"
    ),
)
"""Values of the key `final_reward` of an `env_config`."""


def place_rewards(
    length: int,
    spans: Sequence[StepSpan],
    episode: Episode,
    placement: str,
    final_reward: str,
) -> Floats:
    """Per-token rewards of one row for the steps of `spans`, which are actions of `episode`:
    float64 of shape (length,), 0.0 on all other tokens.

    `placement` is a name in `REWARD_PLACEMENTS`, `final_reward` one in `FINAL_REWARDS`. With
    "last_step", a step's own `token_rewards` (one per agent token) override `placement`; the rest
    of the step's reward goes to its last token.
    """
    rewards = np.zeros(length)
    on_tokens = REWARD_PLACEMENTS[placement].on_tokens
    steps = [episode.steps[span.step] for span in spans]
    of_steps = FINAL_REWARDS[final_reward].of_steps
    for span, placed in of_steps(spans, steps, episode.reward, on_tokens):
        rewards[span.start : span.stop] = placed
    return rewards


def per_token_rewards(rollout: Rollout) -> list[Floats]:
    """The rewards on the tokens of each row, float64 of shape (T,): 0.0 off agent tokens and in a
    failed rollout. In free shots only the penalties count."""
    return [
        row_rewards(rollout, row)
        if row.given_rewards is None or rollout.failed
        else row.given_rewards
        for row in rollout.rows
    ]


def row_rewards(rollout: Rollout, row: Row, given: Mapping[int, Floats] | None = None) -> Floats:
    """The rewards on one row's tokens, as they follow from the steps; `given` replaces those of
    some scored episodes, shape (T,) each."""
    rewards = np.zeros(len(row.token_ids))
    for episode in () if rollout.failed else rollout.episodes:
        if episode.score_weight and given is not None and episode.index in given:
            given_here = given[episode.index]  # made when the row was shorter
            rewards[: len(given_here)] += given_here
            continue
        spans = [
            span
            for span in row.spans
            if span.episode == episode.index and episode.steps[span.step].kind == "action"
        ]
        if spans:
            counted = episode if episode.score_weight else _penalties(episode)
            placement, final = rollout.reward_placement, rollout.final_reward_placement
            rewards += place_rewards(len(rewards), spans, counted, placement, final)
    return rewards


def _penalties(episode: Episode) -> Episode:
    """The episode as if its malformed actions had lost their penalties, and nothing been earned."""
    steps = tuple(
        replace(step, reward=0.0 - step.penalty, token_rewards=None) for step in episode.steps
    )
    return replace(episode, steps=steps, reward=sum(step.reward for step in steps))
