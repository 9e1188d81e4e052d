"""The example that trains in a plain loop makes the trainer's gradient."""

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback

from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, RolloutBatch, make

EXAMPLE = Path(__file__).parent.parent / "examples" / "grpo_from_scratch.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("grpo_from_scratch", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def warm(example):
    """The example's model after a shorter warm start, and its environment."""
    example.WARM_START_STEPS = 15
    env = make("Bandit", env_config=example.BANDIT)
    return example.warm_start(env, list(env.get_train_dataset()["task_data"]))


class Gradients(TrainerCallback):
    """What the optimizer is given at its first step."""

    def __init__(self):
        self.first = None

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        if self.first is None:
            self.first = gradients(model)


def gradients(model):
    return torch.cat([p.grad.flatten().double() for p in model.parameters()])


def test_its_gradient_is_the_trainers_on_the_same_rollouts(example, warm, tmp_path):
    estimator = "step_return"
    model, env = warm
    played, seen = [], Gradients()
    trainer = GRPOEnvTrainer(
        model,
        GRPOEnvConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            learning_rate=0.0,
            per_device_train_batch_size=32,
            num_generations=8,
            max_action_tokens=example.MAX_ACTION_TOKENS,
            advantage_estimator=estimator,
            max_grad_norm=1e9,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        env.get_train_dataset(),
        processing_class=env.tokenizer,
        rollout_sink=lambda rollouts, _: played.extend(rollouts),
        callbacks=[seen],
    )
    trainer.train()
    batch = RolloutBatch(played)
    assert len(played) == 32
    assert sum(sum(row.agent_token_mask) for row in batch.rows) > 100

    model.zero_grad()
    loss = example.grpo_loss(model, batch, estimator)
    loss.backward()
    ours = gradients(model)
    assert seen.first.norm() > 1e-3
    assert (ours - seen.first).norm() < 1e-5 * seen.first.norm()
