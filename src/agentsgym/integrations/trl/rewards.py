"""The reward function that goes with `rollout_func`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# TRL logs its own.
_OF_TRL = ("reward", "reward_std")


def episode_reward(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    *,
    episode_reward: Sequence[float | None] | None = None,
    figures: Sequence[Mapping[str, float]] = (),
    log_metric: Callable[[str, float], None] | None = None,
    **_: Any,
) -> list[float | None]:
    """The reward of each rollout, the mean over its scored episodes; None if it failed.

    Also logs the figures of the generation (`win_rate`, `stop/done`, the environments' own, …)
    under the names that `GRPOEnvTrainer` uses. Raises ValueError without our `rollout_func`.
    """
    if episode_reward is None:
        raise ValueError(
            "episode_reward reads what the rollouts brought: also give the trainer "
            "rollout_func=agentsgym.integrations.trl.rollout_func"
        )
    if log_metric is not None and figures:
        for name, value in figures[0].items():
            if name not in _OF_TRL:
                log_metric(name, value)
    return list(episode_reward)
