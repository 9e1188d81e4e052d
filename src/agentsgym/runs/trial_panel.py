"""What a run's picture shows of trials: the reward of each episode."""

import re
from collections.abc import Mapping
from typing import Any

from agentsgym.evaluation import Evaluation
from agentsgym.runs.files.summary import Summary

_REWARD = re.compile(r"episode_(\d+)/reward")
_EVALUATIONS = {"before": "before", "warm_started": "warm-started", "after": "after"}
_COLORS = {"before": "#6b7280", "warm_started": "#1f5fa8", "after": "#d1660a"}
INFORMING = "informing/free_shots"


def episode_rewards(figures: Evaluation) -> list[float]:
    """The mean reward of each episode of a trial; empty if there is only one."""
    found = ((_REWARD.fullmatch(name), value) for name, value in figures.trial.items())
    numbered = {int(match[1]): value for match, value in found if match}
    return [numbered[number] for number in sorted(numbered)]


def evaluated_episodes(summary: Summary) -> Mapping[str, list[float]]:
    """The rewards of the episodes in each evaluation that has them, by its name in the summary."""
    evaluations = {name: getattr(summary, name) for name in _EVALUATIONS}
    found = {name: episode_rewards(f) for name, f in evaluations.items() if f is not None}
    return {name: rewards for name, rewards in found.items() if rewards}


def draw_episodes(axes: Any, evaluations: Mapping[str, list[float]]) -> None:
    """Reward over the number of the episode in its trial, a line per evaluation."""
    for name, rewards in evaluations.items():
        numbers = range(1, len(rewards) + 1)
        axes.plot(numbers, rewards, "o-", color=_COLORS[name], label=_EVALUATIONS[name])
    longest = max(map(len, evaluations.values()))
    axes.set_xticks(range(1, longest + 1))
    axes.set_xlim(0.7, longest + 0.3)
    axes.set_xlabel("episode of the trial")
    axes.set_ylabel("reward, held-out tasks")
    axes.legend(frameon=False, fontsize=9)
