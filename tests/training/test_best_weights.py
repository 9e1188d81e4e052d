"""A run that keeps its best weights ends with those that earn more, whatever came after them."""

from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

from agentsgym.runs import callbacks
from agentsgym.runs.callbacks import BestWeights
from training.test_trainer_engines import ToyEngine, inner  # noqa: F401  # a fixture


class Seen(TrainerCallback):
    """The mean reward and the weights of each step."""

    def __init__(self):
        self.rewards, self.weights = [], []

    def on_log(self, args, state, control, model=None, logs=None, **_):
        if "reward" in logs:
            self.rewards.append(logs["reward"])
            self.weights.append({n: p.detach().clone() for n, p in model.named_parameters()})


@pytest.fixture
def trained(make_trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(callbacks, "WINDOW", 2)
    trainer, seen = make_trainer(max_steps=5, learning_rate=1e-2), Seen()
    kept = BestWeights(trainer, tmp_path / "best.safetensors")
    trainer.add_callback(seen)
    trainer.add_callback(kept)
    trainer.train()
    means = [(a + b) / 2 for a, b in zip(seen.rewards, seen.rewards[1:], strict=False)]
    return SimpleNamespace(trainer=trainer, kept=kept, seen=seen, at=means.index(max(means)) + 1)


def now(trainer):
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def rows(trainer):
    return [dict(row) for row in trainer.train_dataset]


def zero(trainer):
    with torch.no_grad():
        for one in trainer.model.parameters():
            one.zero_()
    trainer.state.global_step += 1


def earns(monkeypatch, kept, *rewards):
    """The last weights earn the first reward, the kept ones the second."""
    planted = iter(rewards)
    monkeypatch.setattr(kept, "_earned", lambda rows, seed: next(planted))


def test_weights_that_were_unlearned_come_back(trained, monkeypatch):
    notes = []
    zero(trained.trainer)
    earns(monkeypatch, trained.kept, 0.2, 0.7)
    figures = trained.kept.choose(rows(trained.trainer), 0, notes.append)
    assert figures == {"step": trained.at + 1, "kept": 0.7, "last": 0.2}
    assert same(now(trained.trainer), trained.seen.weights[trained.at])
    assert f"after step {trained.at + 1}" in notes[0]


def test_last_weights_that_earn_as_much_stay(trained, monkeypatch):
    notes, last = [], now(trained.trainer)
    trained.trainer.state.global_step += 1
    earns(monkeypatch, trained.kept, 0.7, 0.7)
    trained.kept.choose(rows(trained.trainer), 0, notes.append)
    assert same(now(trained.trainer), last) and not notes


def test_both_are_played_with_their_own_weights(trained):
    asked = rows(trained.trainer), 0
    trained.trainer.state.global_step += 1
    earned = trained.kept._earned(*asked)
    before = now(trained.trainer)
    zero(trained.trainer)
    trained.trainer.state.global_step -= 1  # no step was made: the engine must be told
    trained.kept._load(now(trained.trainer))
    assert trained.kept._earned(*asked) != earned
    trained.kept._load(before)
    assert trained.kept._earned(*asked) == earned


def test_a_server_gets_the_weights_that_are_loaded(make_trainer, inner, tmp_path):  # noqa: F811
    """It knows weights by their version, which stays where no step is made."""
    engine = ToyEngine(inner)
    trainer = make_trainer(engine=engine, model=inner.model)
    kept = BestWeights(trainer, tmp_path / "best.safetensors")
    trainer.push_weights(3)
    trainer.push_weights(3)
    kept._load(now(trainer))
    trainer.push_weights(3)
    assert engine.calls == [(3, True), (3, False), (3, True)]


def test_a_resumed_run_goes_on_with_what_was_kept(trained, monkeypatch, tmp_path):
    trained.kept.on_save(None, trained.trainer.state, None)
    later, earlier = (BestWeights(trained.trainer, tmp_path / "best.safetensors") for _ in "12")
    later.on_train_begin(None, SimpleNamespace(global_step=5), None)
    zero(trained.trainer)
    earns(monkeypatch, later, 0.2, 0.7)
    later.choose(rows(trained.trainer), 0, lambda _: None)
    assert same(now(trained.trainer), trained.seen.weights[trained.at])
    earlier.on_train_begin(None, SimpleNamespace(global_step=1), None)  # before it was kept
    assert earlier.choose(rows(trained.trainer), 0, lambda _: None) == {}
