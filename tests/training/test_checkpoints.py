"""When checkpoints are made, which model is the best, and what a run goes on from."""

import copy

import pytest
import torch
from transformers import TrainerCallback

from helpers import DigitEnv


def saved(tmp_path):
    numbers = [int(p.name.partition("-")[2]) for p in (tmp_path / "out").glob("checkpoint-*")]
    return sorted(numbers)


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


class Evaluations:
    """The values that `evaluate` is to find, one after another; keeps the weights it was given."""

    def __init__(self, trainer, values):
        self._values = iter(values)
        self.seen = {}
        original = trainer.evaluate
        self._trainer = trainer

        def evaluate(*args, **options):
            metrics = original(*args, **options)
            metrics["eval_reward"] = next(self._values)
            self.seen[trainer.state.global_step] = weights(trainer.model)
            return metrics

        trainer.evaluate = evaluate


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"save_steps": 5, "num_iterations": 3, "max_steps": 7}, [6, 7]),
        ({"save_steps": 2, "num_iterations": 3, "max_steps": 9}, [3, 6, 9]),
        ({"save_steps": 2, "max_steps": 3}, [2, 3]),
    ],
)
def test_a_checkpoint_due_within_a_generation_is_made_at_its_end(
    make_trainer, tmp_path, settings, expected
):
    make_trainer(save_strategy="steps", **settings).train()
    assert saved(tmp_path) == expected


def test_a_checkpoint_that_a_callback_asks_for_is_not_lost(make_trainer, tmp_path):
    class Ask(TrainerCallback):
        def on_log(self, args, state, control, **_):
            control.should_save |= state.global_step == 1

    trainer = make_trainer(num_iterations=3, max_steps=6)
    trainer.add_callback(Ask())
    trainer.train()
    assert saved(tmp_path) == [3]


def test_what_is_due_when_a_callback_stops_training_is_saved(make_trainer, tmp_path):
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 5

    trainer = make_trainer(num_iterations=3, max_steps=9, save_strategy="steps", save_steps=4)
    trainer.add_callback(Stop())
    trainer.train()
    assert saved(tmp_path) == [5]


@pytest.mark.parametrize(
    ("settings", "values", "best"),
    [
        ({"eval_steps": 5, "save_steps": 5, "num_iterations": 3, "max_steps": 9}, [3, 1], 6),
        ({"eval_steps": 1, "save_steps": 4, "max_steps": 4}, [0, 5, 1, 2], 2),
        (
            {"eval_steps": 2, "save_strategy": "best", "num_iterations": 3, "max_steps": 6},
            [1, 0],
            3,
        ),
    ],
)
def test_the_model_that_was_evaluated_best_is_loaded(make_trainer, settings, values, best):
    options = {
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "load_best_model_at_end": True,
        "eval_dataset": DigitEnv(None).get_eval_dataset(),
    }
    trainer = make_trainer(**(options | settings))
    evaluations = Evaluations(trainer, values)
    trainer.train()
    assert trainer.state.best_global_step == best
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{best}")
    assert same(weights(trainer.model), evaluations.seen[best])
    last = evaluations.seen[max(evaluations.seen)]
    assert not same(weights(trainer.model), last)


def test_a_run_that_ended_within_a_generation_goes_on_at_the_next_boundaries(
    make_trainer, tiny_llama, tmp_path
):
    options = {"num_iterations": 3, "save_strategy": "steps", "save_steps": 100}
    make_trainer(model=copy.deepcopy(tiny_llama), max_steps=4, **options).train()
    trainer = make_trainer(model=tiny_llama, max_steps=9, **options)
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    assert list(trainer.played.steps()) == [4, 6]


def test_a_second_training_plays_anew(make_trainer):
    """Nothing of the first one's last generation is left."""
    trainer = make_trainer(num_iterations=3, max_steps=4)
    trainer.train()
    trainer.train()
    assert [info["step"] for info, _ in trainer.played] == [0, 3, 0, 3]


def test_the_rate_falls_when_the_reward_stops_rising(make_trainer):
    trainer = make_trainer(
        max_steps=5,
        eval_dataset=DigitEnv(None).get_eval_dataset(),
        eval_strategy="steps",
        eval_steps=1,
        lr_scheduler_type="reduce_lr_on_plateau",
        lr_scheduler_kwargs={"patience": 0, "factor": 0.5},
        learning_rate=1e-3,
    )
    Evaluations(trainer, [1.0, 2.0, 3.0, 3.0, 4.0])
    trainer.train()
    rates = [e["learning_rate"] for e in trainer.state.log_history if "learning_rate" in e]
    # The rate of a step is logged before its evaluation.
    assert rates == pytest.approx([1e-3] * 4 + [5e-4])


@pytest.mark.parametrize("metric", ["loss", "eval_loss"])
def test_the_loss_decides_nothing(make_trainer, metric):
    with pytest.raises(ValueError, match="computes no loss"):
        make_trainer(metric_for_best_model=metric)
