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


@pytest.mark.parametrize("estimator", ["grpo", "step_return"])
def test_its_gradient_is_the_trainers_on_the_same_rollouts(example, warm, tmp_path, estimator):
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


def test_nothing_but_agent_tokens_moves_its_loss(example, warm):
    """The loss's derivative by the log-probability of a token is −A/n, and 0 off agent tokens."""
    model, env = warm
    engine = example.EmbeddedEngine(model, env.tokenizer)
    agent = example.DirectOutputAgent(engine, example.SamplingParams(max_tokens=4))
    batch = env.run_trial([{"seed": k} for k in range(8)], agent, 8)
    caught = []
    original = example.log_probabilities

    def keep(*arguments):
        caught.append(original(*arguments))
        caught[0].retain_grad()
        return caught[0]

    example.log_probabilities = keep
    try:
        example.grpo_loss(model, batch).backward()
    finally:
        example.log_probabilities = original
    masks = [row.agent_token_mask.tolist() for row in batch.rows]
    _, mask = example.padded(batch.rows, masks)
    assert (caught[0].grad[mask[:, 1:] == 0] == 0).all()
    assert (caught[0].grad[mask[:, 1:] == 1] != 0).any()


def test_the_page_is_short():
    assert len(EXAMPLE.read_text().splitlines()) <= 200
