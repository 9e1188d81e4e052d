"""ActionMaskTrainer: Axolotl's own trainer with an action mask and credit for each step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from axolotl.core.trainers.grpo.trainer import AxolotlGRPOTrainer

from agentsgym.envs import ConfigError
from agentsgym.integrations.axolotl.plugin import find_section
from agentsgym.integrations.axolotl.step_credit import (
    Actions,
    action_advantages,
    check_step_estimator,
)

_ESTIMATOR = "step_return"
# Settings with which TRL's loss would not use one advantage per token, and what to do instead.
_REFUSED = {
    "importance_sampling_level": ("sequence", "it averages the advantages of a rollout"),
    "loss_type": ("luspo", "in TRL 1.9 it counts them with a wrong mean"),
    "use_liger_kernel": (True, "its loss takes one advantage per rollout"),
}


class ActionMaskTrainer(AxolotlGRPOTrainer):  # type: ignore[misc]
    """Trains on what a `rollout_func` returns: besides TRL's keys `action_mask` (1 for tokens of
    actions, as long as `completion_ids`; TRL's name `env_mask` is also read) and `step_rewards`, a
    number for each action.

    Tokens off the mask are read and enter no loss, no ratio and no metric. The advantages, shape
    (B, T), are those of an estimator of ours for steps: `agentsgym.advantage_estimator` of the
    YAML, by default `step_return`. Rollouts without `step_rewards` keep TRL's advantages.

    Raises ValueError for settings with which TRL's loss would not use an advantage per token, and
    for an estimator that needs more than step rewards.
    """

    def __init__(self, *args: Any, rollout_func: Any = None, **options: Any) -> None:
        if rollout_func is None:
            raise ConfigError("ActionMaskTrainer needs trl.rollout_func, which returns action_mask")
        super().__init__(*args, rollout_func=_with_env_mask(rollout_func), **options)
        for name, (value, why) in _REFUSED.items():
            if getattr(self.args, name) == value:
                raise ConfigError(f"{name}={value!r} has no use for ActionMaskTrainer: {why}")
        section = find_section()
        settings = section.settings if section is not None else {}
        self._estimator: str = settings.get("advantage_estimator", _ESTIMATOR)
        self._options = settings.get("advantage_options") or {}
        check_step_estimator(self._estimator, self._options)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        rewards = [row.get("step_rewards") for row in inputs]
        if any(one is not None for one in gather_object(rewards)):
            output["advantages"] = self._of_tokens(output, rewards)
        return output

    def _of_tokens(self, output: Mapping[str, Any], rewards: Sequence[Any]) -> torch.Tensor:
        """Advantages of shape (B, T), with groups that may lie on several ranks."""
        mask = output["tool_mask"] * output["completion_mask"]
        mine = [
            Actions.of(row, values or (), f"rollout {number}")
            for number, (row, values) in enumerate(zip(mask.tolist(), rewards, strict=True))
        ]
        size = self.num_generations if self.model.training else self.num_generations_eval
        advantages = action_advantages(gather_object(mine), size, self._estimator, self._options)
        first = self.accelerator.process_index * len(mine)
        placed = [
            torch.from_numpy(one.placed(values, mask.shape[1]))
            for one, values in zip(mine, advantages[first : first + len(mine)], strict=True)
        ]
        return torch.stack(placed).to(device=mask.device, dtype=torch.float32)


def _with_env_mask(rollout_func: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The same function with TRL's name for the mask. Raises ValueError for one without a mask, or
    whose mask has another length than the completion."""

    def wrapped(prompts: Any, trainer: Any) -> dict[str, Any]:
        output = dict(rollout_func(prompts, trainer))
        mask = output.pop("action_mask", output.get("env_mask"))
        if mask is None:
            raise ValueError("the rollout_func returned neither action_mask nor env_mask")
        for number, (row, ids) in enumerate(zip(mask, output["completion_ids"], strict=True)):
            if len(row) != len(ids):
                raise ValueError(
                    f"rollout {number}: action_mask has {len(row)} entries for {len(ids)} tokens"
                )
        return {**output, "env_mask": mask}

    return wrapped
