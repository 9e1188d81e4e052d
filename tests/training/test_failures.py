"""Rollouts that fail: one is told about, a batch of nothing else ends training and says why."""

import logging
import math
from pathlib import Path

import pytest

from agentsgym import register
from agentsgym.envs import task_dataset
from agentsgym.rollout import EveryRolloutFailed
from helpers import CountdownEnv, DigitEnv


class BreaksLater(DigitEnv):
    """Every rollout fails once `broken` is set."""

    broken = False

    def _step_episode(self, session_id, state, action):
        if self.broken:
            raise ConnectionError("the answerer is down")
        return super()._step_episode(session_id, state, action)


@pytest.fixture
def breaks_later(monkeypatch):
    monkeypatch.setattr(BreaksLater, "broken", False)
    register("BreaksLater", BreaksLater)
    return BreaksLater(None)


def break_at(step):
    """A callback after whose step every rollout fails."""
    from transformers import TrainerCallback

    class Break(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            BreaksLater.broken = state.global_step >= step

    return Break()


def test_training_stops_at_the_first_generation_that_failed_and_says_why(
    make_trainer, breaks_later, tmp_path
):
    trainer = make_trainer(breaks_later, max_steps=30, save_strategy="steps", save_steps=2)
    trainer.add_callback(break_at(3))
    with pytest.raises(EveryRolloutFailed) as caught:
        trainer.train()
    text = str(caught.value)
    assert "all 8 rollouts" in text and "after step 3" in text
    assert "the answerer is down" in text.splitlines()[-1]
    assert "_step_episode" in caught.value.traceback
    played = trainer.played.steps()
    assert list(played) == [0, 1, 2, 3] and all(r.failed for r in played[3])
    assert [e["step"] for e in trainer.state.log_history] == [1, 2, 3]
    assert [p.name for p in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-2"]


def test_each_error_is_logged_once(make_trainer, caplog):
    class Fragile(DigitEnv):
        def _step_episode(self, session_id, state, action):
            number = int(session_id.split("-")[1])
            if number < 2:
                raise RuntimeError(f"boom {number}")
            return super()._step_episode(session_id, state, action)

    register("Fragile", Fragile)
    trainer = make_trainer(Fragile(None), max_steps=3)
    with caplog.at_level(logging.WARNING, logger="agentsgym"):
        trainer.train()
        trainer.evaluate(trainer.train_dataset)
    messages = [r.getMessage() for r in caplog.records if "rollouts fail" in r.getMessage()]
    assert sorted(text.strip().splitlines()[-1] for text in messages) == [
        "RuntimeError: boom 0",
        "RuntimeError: boom 1",
    ]
    assert all("Traceback" in text and "train, step 0" in text for text in messages)
    assert [e["failed"] for e in trainer.state.log_history if "failed" in e] == [0.5] * 3


def test_an_evaluation_in_which_everything_failed_does_not_end_training(
    make_trainer, chat_tokenizer, caplog
):
    env = CountdownEnv(chat_tokenizer)
    trainer = make_trainer(
        eval_dataset=task_dataset(env, [{"broken": True}] * 3),
        eval_strategy="steps",
        eval_steps=1,
        max_steps=2,
        metric_for_best_model="win_rate",
    )
    with caplog.at_level(logging.WARNING, logger="agentsgym"):
        trainer.train()
    assert trainer.state.best_metric == float("-inf")
    assert [e["eval_failed"] for e in trainer.state.log_history if "eval_failed" in e] == [1.0, 1.0]
    assert "this task cannot be set up" in caplog.text


def test_a_generation_of_malformed_actions_is_warned_of_once(make_trainer, chat_tokenizer, caplog):
    class Strict(DigitEnv):
        def _step_episode(self, session_id, state, action):
            return state, 0.0, False, {"malformed": True}

    register("Strict", Strict)

    def warnings(env):
        before = len(caplog.records)
        make_trainer(env).train()
        return [r for r in caplog.records[before:] if "malformed" in r.getMessage()]

    assert [len(warnings(Strict(chat_tokenizer))), len(warnings(DigitEnv(chat_tokenizer)))] == [
        1,
        0,
    ]


def test_a_name_of_run_files_is_no_model_of_the_trainer(make_trainer):
    with pytest.raises(ValueError, match=r"model_place\('builtin:smollm2'\)"):
        make_trainer(model="builtin:smollm2")


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_without_a_finite_norm_ends_training(
    make_trainer, chat_tokenizer, tmp_path, clip
):
    """Rewards of 1e25 are legal, and the square of their gradient overflows float32."""

    class Rich(DigitEnv):
        def _step_episode(self, session_id, state, action):
            state, _, done, info = super()._step_episode(session_id, state, action)
            return state, 1e25 * len(action), done, info

    register("Rich", Rich)
    options = {"max_grad_norm": clip, "logging_steps": 5, "save_strategy": "steps", "save_steps": 1}
    scaled = make_trainer(Rich(chat_tokenizer), output_dir=str(tmp_path / "scaled"), **options)
    scaled.train()
    assert scaled.state.global_step == 2
    trainer = make_trainer(Rich(chat_tokenizer), advantage_estimator="rloo", **options)
    with pytest.raises(ArithmeticError, match=r"inf in step 1, .*rewards"):
        trainer.train()
    assert trainer.state.log_history[-1]["grad_norm"] == math.inf
    assert not list(Path(trainer.args.output_dir).glob("checkpoint-*"))
