"""TRL's `environment_factory`: an environment as a tool `act` of a tool-calling model."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.envs.dataset import check_row
from agentsgym.rollout import SteppedTrial
from agentsgym.types import Message, Trust

OVER = "The game is over."
"""What a call of the tool answers after the end."""


class ToolEnvironment:
    """One rollout at a time: `reset` begins a trial on the task of its row, `act` is the tool, and
    `get_reward` the reward.

    TRL turns every other public method into a tool, and the words of `act`'s docstring reach the
    model.
    """

    def __init__(self, envs: EnvPool) -> None:
        self._envs = envs
        self._trial: SteppedTrial | None = None

    def reset(
        self,
        *,
        env_class_path: str,
        env_config: Mapping[str, Any],
        task_data: Mapping[str, Any],
        prompt: Sequence[Mapping[str, Any]] = (),
        **_: Any,
    ) -> str:
        """Begin a trial; returns its first prompt, which TRL appends to the row's `prompt`."""
        self._close()
        fields = {
            "env_class_path": env_class_path,
            "env_config": env_config,
            "task_data": task_data,
        }
        row = check_row(fields, 0)
        self._trial = SteppedTrial(self._envs.get(row), row["task_data"])
        before = "\n\n" if prompt and prompt[-1]["content"] else ""
        return before + _text(self._trial.messages)

    def act(self, action: str) -> str:
        """Makes your next move and returns what happens.

        Args:
            action: The move, as plain text.
        """
        trial = self._trial
        if trial is None or trial.over:
            return OVER
        trial.act(action)
        return OVER if trial.over else _text(trial.new_messages)

    def get_reward(self) -> float | None:
        """The mean reward of the trial's scored episodes; a trial that the model left is scored
        with the steps that it made. None if an error ended it."""
        if self._trial is None:
            return None
        reward = self._trial.cut("no_call").final_reward
        return reward if math.isfinite(reward) else None

    def _close(self) -> None:
        if self._trial is not None:
            self._trial.close()


def environment_factory(
    envs: Iterable[MultistepEnv] = (),
    *,
    trust: Trust = False,
) -> Callable[[], ToolEnvironment]:
    """For `GRPOTrainer(environment_factory=…)`, with rows of the dataset schema as its data.

    `envs` are objects that play the rows of their class and config; others are made.
    `trust` says what rows may name, beyond what is registered.
    """
    pool = EnvPool(None, trust, envs)
    return lambda: ToolEnvironment(pool)


def _text(messages: Iterable[Message]) -> str:
    return "\n\n".join(message["content"] for message in messages)
