"""What a trainer asks of an engine that it is handed."""

import copy

import pytest

from agentsgym.generation import EmbeddedEngine


class SamplingEngine:
    """The members of `Engine`, and no others: enough for an agent."""

    def __init__(self, engine):
        self.inner = engine
        self.tokenizer, self.capacity = engine.tokenizer, engine.capacity

    def submit(self, requests):
        self.inner.submit(requests)

    def poll(self):
        return self.inner.poll()

    def release(self, session_ids):
        self.inner.release(session_ids)

    @property
    def stats(self):
        return self.inner.stats


class ToyEngine(SamplingEngine):
    """What a trainer needs on top; samples from the trained model itself."""

    can_generate_ahead = False
    policy_version = 0

    def __init__(self, engine):
        super().__init__(engine)
        self.calls = []

    def update_weights(self, update):
        self.calls.append((update.version, update.changed))
        self.inner.update_weights(update)
        self.policy_version = update.version

    def close(self):
        self.calls.append("close")


@pytest.fixture
def inner(tiny_llama, chat_tokenizer):
    return EmbeddedEngine(tiny_llama, chat_tokenizer)


def test_an_engine_that_only_samples_is_refused_with_what_it_lacks(make_trainer, inner):
    with pytest.raises(TypeError) as refused:
        make_trainer(engine=SamplingEngine(inner))
    text = str(refused.value)
    assert "SamplingEngine" in text and "TrainableEngine" in text
    for name in ("policy_version", "can_generate_ahead", "update_weights", "close"):
        assert name in text
    assert "submit" not in text


@pytest.mark.parametrize("section", [{"urls": ["http://127.0.0.1:9"]}, {"capacity": 3}])
def test_settings_of_an_engine_beside_an_engine_are_refused(make_trainer, inner, section):
    with pytest.raises(ValueError, match=r"got a ToyEngine, .*section engine"):
        make_trainer(engine=ToyEngine(inner), engine_section=section)


def test_an_engine_without_a_tokenizer_is_refused(make_trainer, inner):
    engine = ToyEngine(inner)
    engine.tokenizer = None
    with pytest.raises(TypeError, match="ToyEngine has no tokenizer"):
        make_trainer(engine=engine)


def test_a_scratch_engine_gets_the_weights_of_each_step(make_trainer, inner):
    engine = ToyEngine(inner)
    trainer = make_trainer(engine=engine, max_steps=2, model=inner.model)
    trainer.train()
    trainer.evaluate(trainer.train_dataset.select(range(2)))
    played = [(info["phase"], {r.policy_version for r in at}) for info, at in trainer.played]
    assert played == [("train", {0}), ("train", {1}), ("eval", {2})]
    assert engine.calls == [(0, True), (1, True), (2, True)]
    trainer.push_weights(2)
    assert engine.calls[-1] == (2, False)
    trainer.best_model_loaded()  # servers know weights by their version, which stays
    trainer.push_weights(2)
    assert engine.calls[-1] == (2, True)


def test_the_time_of_new_weights_is_logged_where_servers_take_them(make_trainer, inner):
    engine = ToyEngine(inner)
    engine.can_generate_ahead = True
    trainer = make_trainer(engine=engine, max_steps=1, model=inner.model)
    trainer.train()
    assert trainer.state.log_history[0]["time/weights"] >= 0
    assert trainer.sync.push(inner.model, 0) == {}  # nothing changed


def test_an_engine_that_keeps_its_old_weights_ends_the_training(make_trainer, inner):
    class Deaf(ToyEngine):
        def update_weights(self, update):
            pass

    trainer = make_trainer(engine=Deaf(inner), max_steps=2)
    with pytest.raises(RuntimeError, match=r"Deaf was given the weights of version 1.* is 0"):
        trainer.train()


def test_generating_ahead_needs_a_copy_of_the_weights(make_trainer, inner):
    with pytest.raises(ValueError, match=r"max_staleness=2 needs .* ToyEngine does not have"):
        make_trainer(engine=ToyEngine(inner), max_staleness=2)
    with pytest.raises(ValueError, match=r"max_staleness=1 needs .* EmbeddedEngine does not have"):
        make_trainer(max_staleness=1)


def test_another_copy_of_the_model_is_not_trained_with(make_trainer, inner):
    trainer = make_trainer(engine=inner, model=copy.deepcopy(inner.model))
    with pytest.raises(ValueError, match="another model than the one that is trained"):
        trainer.train()
