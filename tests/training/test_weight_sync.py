"""What giving the weights to an engine is told and what it measures."""

from dataclasses import replace

from agentsgym.training.collect import WeightSync
from agentsgym.types import WeightTransfer


class Engine:
    """Keeps the updates that it gets."""

    weight_transfer = WeightTransfer(bytes=1000, slowest=0.25)
    policy_version = 0

    def __init__(self):
        self.told = []

    def update_weights(self, update):
        self.told.append((update.version, update.changed, update.sampling))
        self.policy_version = update.version


class Alone:
    """One rank."""

    index = 0

    def gather(self, values):
        return values


def test_a_push_is_measured_once_and_only_if_something_changed(tmp_path):
    engine = Engine()
    sync = WeightSync(engine, tmp_path, Alone())
    measured = sync.push(None, 1)
    assert measured.pop("time/weights") >= 0
    assert measured == {"weights/bytes": 1000, "time/weights_server": 0.25}
    assert sync.push(None, 1) == {}
    assert sync.push(
        None, 2, lambda update: engine.update_weights(replace(update, sampling=True))
    ).keys() == {"time/weights", "time/weights_server", "weights/bytes"}
    assert engine.told == [(1, True, False), (1, False, False), (2, True, True)]


def test_an_engine_that_shares_the_weights_has_nothing_to_measure(tmp_path):
    engine = Engine()
    engine.weight_transfer = None
    sync = WeightSync(engine, tmp_path, Alone())
    assert sync.push(None, 1) == {}
