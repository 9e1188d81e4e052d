"""The placement of rewards on agent tokens in `per_token_rewards` (and nowhere else)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agentsgym.types.names import table
from agentsgym.types.records import Step, StepSpan

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
    steps: Sequence[Step],
    *,
    placement: str,
    final_reward: str,
    episode_reward: float,
) -> list[float]:
    """Per-token rewards of one row, shape (length,), 0.0 on all tokens except the agent's.

    `spans` and `steps` correspond one to one; their episode earned `episode_reward`. `placement` is
    a name in `REWARD_PLACEMENTS`, `final_reward` one in `FINAL_REWARDS`. With "last_step", a step's
    own `token_rewards` (one per agent token) override `placement`; the rest of the step's reward
    goes to its last token.
    """
    rewards = [0.0] * length
    on_tokens = REWARD_PLACEMENTS[placement].on_tokens
    of_steps = FINAL_REWARDS[final_reward].of_steps
    for span, placed in of_steps(spans, steps, episode_reward, on_tokens):
        rewards[span.start : span.stop] = placed
    return rewards
