"""The arms of experiments/self_teacher.py, on a trainer of toy games."""

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import CountdownEnv
from training import reference

TOLD = "It is a dog. Is it an animal?"


@pytest.fixture
def arms(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "experiments"))
    import self_teacher

    return self_teacher


@pytest.fixture
def trainer(make_trainer, chat_tokenizer):
    return make_trainer(env=CountdownEnv(chat_tokenizer))


def rollouts_of(trainer):
    trainer.model.train()
    return trainer._prepare_inputs([])["rollouts"]


def test_the_teacher_reads_another_first_prompt(arms, trainer, chat_tokenizer):
    """And the rest of the row: every later observation and its own earlier answers."""
    trainer.passes.append(arms.SelfTeacher(trainer, lambda task_data: TOLD))
    message = [{"role": "user", "content": TOLD}]
    begin = chat_tokenizer.apply_chat_template(
        message, add_generation_prompt=True, return_dict=False
    )
    for row in (row for one in rollouts_of(trainer) for row in one.rows):
        ids = [*begin, *row.token_ids[row.spans[0].start :].tolist()]
        with torch.no_grad():
            expected, _ = reference.log_probabilities(trainer.model, ids)
        own = expected[row.positions + len(ids) - row.length]
        assert torch.allclose(row.logps["teacher"], own, atol=1e-4)
        assert len(own) == row.agent_tokens > 0


def test_what_the_environment_says_between_two_actions_is_observed(arms, trainer, chat_tokenizer):
    for row in (row for one in rollouts_of(trainer) for row in one.rows):
        at = arms.observed(row).positions
        assert "The number is 1" in chat_tokenizer.decode(row.token_ids[at])
        assert not set(at.tolist()) & set(row.positions.tolist())
        assert at.min() >= row.spans[0].stop and at.max() < row.spans[1].start


def test_the_control_lowers_unlikely_tokens_alone(arms, trainer):
    rollouts = rollouts_of(trainer)
    rows = [row for one in rollouts for row in one.rows]
    before = [row.advantages.copy() for row in rows]
    arms.Unlikely().run(rollouts)
    for row, old in zip(rows, before, strict=True):
        unlikely = np.exp(row.logprobs) < 0.1
        unlikely &= np.isin(np.arange(row.length), row.positions)
        assert (row.advantages - old).tolist() == (-1.0 * unlikely).tolist()
    assert any(row.advantages.min() <= -1 for row in rows)
