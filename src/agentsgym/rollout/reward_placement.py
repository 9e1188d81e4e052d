"""The placement of rewards on agent tokens in `per_token_rewards` (and nowhere else)."""

from collections.abc import Sequence

from agentsgym.types import Step, StepSpan


def place(
    length: int,
    spans: Sequence[StepSpan],
    steps: Sequence[Step],
    *,
    placement: str,
    final_reward: str,
    episode_reward: float,
) -> list[float]:
    """Per-token rewards of one row, shape (length,), 0.0 on all tokens except the agent's.

    `spans` and `steps` correspond one to one; their episode earned `episode_reward`. `placement`
    puts a step's reward r on its n tokens: "spread" r/n each, "broadcast" r each, "last_token" r on
    the last. `final_reward` "repeat" first replaces each step's reward by the episode's; "spread"
    ignores steps and distributes the episode's reward evenly over all agent tokens of the row. A
    step's own `token_rewards` (one per agent token) override `placement`; the rest of the step's
    reward goes to its last token.
    """
    rewards = [0.0] * length
    if final_reward == "spread":
        total = sum(span.length for span in spans)
        for span in spans:
            rewards[span.start : span.stop] = [episode_reward / total] * span.length
        return rewards
    for span, step in zip(spans, steps, strict=True):
        if step.token_rewards is not None and final_reward == "last_step":
            rewards[span.start : span.stop] = _own(step)
        elif span.length:
            reward = episode_reward if final_reward == "repeat" else step.reward
            rewards[span.start : span.stop] = _on_tokens(reward, span.length, placement)
    return rewards


def _on_tokens(reward: float, count: int, placement: str) -> list[float]:
    if placement == "broadcast":
        return [reward] * count
    if placement == "last_token":
        return [0.0] * (count - 1) + [reward]
    return [reward / count] * count


def _own(step: Step) -> list[float]:
    assert step.token_rewards is not None
    rewards = list(step.token_rewards)
    if rewards:
        rewards[-1] += step.reward - sum(step.token_rewards)
    return rewards
