"""Every family trains: log-probabilities of the loss equal those of the engine, and one step."""

import pytest
import torch

from family_models import CHANGES, family_model
from helpers import CountdownEnv, task_dataset

QUICK = {"gemma2", "qwen3_5_text"}
EACH = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CHANGES]


@pytest.mark.parametrize("model_type", EACH)
def test_one_step_on_the_probabilities_that_were_sampled(make_trainer, chat_tokenizer, model_type):
    model = family_model(model_type, vocab_size=len(chat_tokenizer))
    env = CountdownEnv(chat_tokenizer)
    tasks = [{"rewards": [1.0] * turns} for turns in (1, 2, 3)]
    trainer = make_trainer(
        env,
        model,
        task_dataset(env, tasks),
        max_steps=1,
        temperature=0.9,
        advantage_estimator="reward",
        per_device_train_batch_size=4,
        num_generations=2,
    )
    before = [parameter.detach().clone() for parameter in model.parameters()]
    rows = [row for rollout in trainer.generate_rollouts() for row in rollout.rows]
    assert len({row.length for row in rows}) > 1  # some of them are padded
    for row, logps in trainer.loss.scorer.logps_of(rows, trainer.model):
        sampler = torch.tensor(row.logprobs[row.positions])
        torch.testing.assert_close(logps, sampler, atol=2e-4, rtol=0)
    trainer.train()
    changed = [
        not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)
    ]
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert sum(changed) > len(changed) / 2
