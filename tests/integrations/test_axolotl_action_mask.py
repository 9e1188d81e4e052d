"""The specification's trainer for Axolotl: what a user's `rollout_func` says of actions and rewards
becomes the gradient, against the formula in float64."""

import os

import pytest

pytest.importorskip("axolotl")
os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"  # read when Axolotl is imported

import torch
from axolotl.core.trainers.grpo.args import AxolotlGRPOConfig
from axolotl.integrations.base import PluginManager
from datasets import Dataset

from agentsgym.envs import ConfigError
from agentsgym.integrations.axolotl import ActionMaskTrainer
from training import reference

PROMPTS = [[5, 6, 7], [5, 6], [5, 9, 7], [8]]
# Actions and observations in turn: a1 o1 a2 o2 …
COMPLETIONS = [[10, 11, 20, 12, 21, 13, 14], [10, 20, 21, 12], [15, 16, 17], [10, 20, 11, 22]]
MASKS = [[1, 1, 0, 1, 0, 1, 1], [1, 0, 0, 1], [1, 1, 1], [1, 0, 1, 0]]
REWARDS = [[0.0, 1.0, 2.0], [1.0, 0.0], [3.0], [0.0, 0.5]]
# Two groups of two: the return to go, less that of the other at the same step.
ADVANTAGES = [[3 - 1, 3 - 0, 2.0], [1 - 3, 0 - 3], [3 - 0.5], [0.5 - 3, 0.5]]


def on_tokens(mask, values):
    """Each action's number on its tokens."""
    spread, action = [], -1
    for position, one in enumerate(mask):
        action += one and (position == 0 or not mask[position - 1])
        spread.append(values[action] if one else 0.0)
    return spread


@pytest.fixture
def make(tiny_llama, chat_tokenizer, tmp_path, monkeypatch):
    """Returns a function that makes the trainer; options are fields of Axolotl's arguments."""
    monkeypatch.setattr(PluginManager.get_instance(), "plugins", {})

    def trainer(mask="action_mask", masks=MASKS, rewards=REWARDS, **options):
        def rollout_func(prompts, _):
            assert len(prompts) == 4
            played = {"prompt_ids": PROMPTS, "completion_ids": COMPLETIONS, "logprobs": None}
            return played | {mask: masks, "step_rewards": rewards}

        arguments = {
            "output_dir": str(tmp_path),
            "per_device_train_batch_size": 4,
            "num_generations": 2,
            "loss_type": "dapo",
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "report_to": [],
            "remove_unused_columns": False,
        }
        return ActionMaskTrainer(
            tiny_llama.double(),
            [lambda prompts, completions, **_: [7.0, 1.0, 2.0, 3.0]],
            args=AxolotlGRPOConfig(**(arguments | options)),
            train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
            processing_class=chat_tokenizer,
            rollout_func=rollout_func,
        )

    return trainer


@pytest.mark.parametrize("mask", ["action_mask", "env_mask"])
def test_the_gradient_is_that_of_credit_per_action(make, mask):
    trainer = make(mask)
    trainer.model.train()
    output = trainer._generate_and_score_completions([{"prompt": p} for p in "aabb"])
    expected = [on_tokens(m, values) for m, values in zip(MASKS, ADVANTAGES)]
    for row, target in zip(output["advantages"].tolist(), expected):
        assert row == pytest.approx(target + [0.0] * (7 - len(target)))
    # What a rollout says of other tokens must not matter.
    off = (output["tool_mask"] == 0) | (output["completion_mask"] == 0)
    output["advantages"][off] = 100.0
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer._compute_loss(trainer.model, output)
    loss.backward()
    rows = [
        reference.Row(p + c, [0] * len(p) + m, [0.0] * len(p) + a, [0] * len(p + c))
        for p, c, m, a in zip(PROMPTS, COMPLETIONS, MASKS, expected)
    ]
    value, truth = reference.gradient_of(
        trainer.model, [[row] for row in rows], reference.Loss("dapo")
    )
    gradient = torch.cat([p.grad.reshape(-1) for p in trainer.model.parameters()])
    assert float(loss.detach()) == pytest.approx(value, rel=1e-5)
    assert float((gradient - truth).norm() / truth.norm()) < 1e-5


def test_rollouts_without_step_rewards_keep_trls_advantages(make):
    trainer = make(rewards=None)
    trainer.model.train()
    output = trainer._generate_and_score_completions([{"prompt": p} for p in "aabb"])
    assert output["advantages"].shape == (4,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mask": "other"}, "neither action_mask nor env_mask"),
        ({"masks": [*MASKS[:3], [1]]}, "rollout 3: action_mask has 1 entries for 4 tokens"),
        ({"rewards": [*REWARDS[:3], [1.0]]}, "rollout 3: action_mask marks 2 actions"),
    ],
)
def test_what_a_rollout_func_returns_is_checked(make, options, words):
    with pytest.raises(ValueError, match=words):
        make(**options)._generate_and_score_completions([{"prompt": p} for p in "aabb"])


@pytest.mark.parametrize(
    "options", [{"importance_sampling_level": "sequence"}, {"loss_type": "luspo"}]
)
def test_settings_that_would_lose_the_credit_of_steps_are_refused(make, options):
    with pytest.raises(ConfigError, match="has no use for ActionMaskTrainer"):
        make(**options)
