"""Rollouts played in the background, with an engine that answers when the test says so."""

import threading
import time

import pytest

from agentsgym import DirectOutputAgent, EnvPool, MultistepEnv, SamplingParams, register
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import LocalSource, RolloutRequest, play
from agentsgym.types import EngineStats, GenerationResult, WeightUpdate
from helpers import CountdownEnv, DigitEnv

SAMPLING = SamplingParams(max_tokens=5)


class Hang(MultistepEnv):
    """Its step waits for `over`."""

    over = threading.Event()

    def _initialize_episode(self, session_id, task_data):
        return 0

    def _format_prompt(self, state, step):
        return "the number"

    def _step_episode(self, session_id, state, action):
        self.over.wait(60)
        return state, 0.0, True, {}


class BlockingHang(Hang):
    blocking = True


@pytest.fixture(autouse=True)
def names():
    for env in (DigitEnv, CountdownEnv, Hang, BlockingHang):
        register(env.__name__.removesuffix("Env"), env)
    Hang.over.clear()
    yield
    Hang.over.set()


class Waiting:
    """An engine that answers the sessions that the test allows. `poll` waits, as engines do."""

    capacity = 8
    stats = EngineStats()

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.policy_version = 0
        self.open = {}
        self.changed = threading.Condition()
        self.error = None
        self.allowed = set()

    def submit(self, requests):
        with self.changed:
            self.open |= {r.session_id: self.policy_version for r in requests}
            self.changed.notify_all()

    def poll(self):
        with self.changed:
            self.changed.wait_for(lambda: self.error or not self.allowed.isdisjoint(self.open), 60)
            if self.error:
                raise self.error
            ready = [sid for sid in self.open if sid in self.allowed]
            self.changed.notify_all()
            return [
                GenerationResult(sid, (5,), (-1.0,), "a", policy_version=self.open.pop(sid))
                for sid in ready
            ]

    def release(self, session_ids):
        with self.changed:
            for sid in session_ids:
                self.open.pop(sid, None)

    def update_weights(self, update):
        self.policy_version = update.version

    can_generate_ahead = True
    close = None

    def allow(self, *requests, error=None):
        with self.changed:
            self.allowed |= {r.session_id for r in requests}
            self.error = error
            self.changed.notify_all()

    def wait_open(self, number):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.open) == number, 60)


@pytest.fixture
def engine(chat_tokenizer):
    return Waiting(chat_tokenizer)


@pytest.fixture
def source(engine):
    source = LocalSource(DirectOutputAgent(engine, SAMPLING), EnvPool(engine.tokenizer))
    yield source
    engine.allow(error=RuntimeError("the test is over"))
    source.close()


def batch(name, number, task=None, first=0):
    row = {"env_class_path": name, "env_config": {}, "task_data": task or {}}
    return [RolloutRequest.of(row, group, 0, group) for group in range(first, first + number)]


def update(version):
    return WeightUpdate(None, version, None)


def test_rollouts_are_those_of_a_play(tiny_llama, chat_tokenizer):
    requests = [*batch("Digit", 6), *batch("Countdown", 6, {"rewards": [0.0] * 4}, first=6)]
    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=4)
    agent, envs = DirectOutputAgent(engine, SAMPLING), EnvPool(chat_tokenizer)
    expected = play(requests, agent, envs)
    source, rollouts = LocalSource(agent, envs), []
    source.submit(requests[:7])
    source.submit(requests[7:])
    while len(rollouts) < len(requests):
        rollouts += source.poll()
    assert source.poll() == []
    source.close()
    assert sorted(rollouts, key=lambda r: r.group) == expected


def test_requests_join_what_is_being_played(engine, source):
    first, second = batch("Digit", 2), batch("Digit", 1, first=2)
    source.submit(first)
    engine.wait_open(2)
    source.submit(second)
    assert source.poll(0.05) == []
    engine.allow(first[1])
    assert [r.group for r in source.poll()] == [1]
    engine.wait_open(2)
    engine.allow(*second)
    assert [r.group for r in source.poll()] == [2]
    engine.allow(*first)
    assert [r.group for r in source.poll()] == [0]
    assert source.poll() == []


def test_weights_may_change_while_an_action_is_open(engine, source):
    """What comes after it is sampled from the new ones, also in the same session."""
    (one,) = batch("Countdown", 1, {"rewards": [0.0, 1.0]})
    source.submit([one])
    engine.wait_open(1)
    source.use_weights(update(3))
    assert engine.open == {one.session_id: 0}
    engine.allow(one)
    assert [r.policy_version for r in source.poll()] == [3]


def test_what_is_played_now_begins_before_what_waits(engine, source):
    first, later = batch("Digit", 10), batch("Digit", 2, first=10)
    source.submit(first)
    engine.wait_open(engine.capacity)
    rollouts = []

    def evaluate():
        rollouts.extend(source.play(later, SamplingParams(max_tokens=2, temperature=0.0)))

    playing = threading.Thread(target=evaluate, daemon=True)
    playing.start()
    while source._open < 12:
        time.sleep(0.001)
    engine.allow(*first[:2], *later)
    playing.join(10)
    assert [r.group for r in rollouts] == [10, 11]
    engine.allow(*first)
    assert {r.group for _ in first if (over := source.poll()) for r in over} == set(range(10))


def test_the_time_without_requests_is_counted(engine, source):
    begun = time.monotonic()
    time.sleep(0.2)
    (one,) = batch("Digit", 1)
    source.submit([one])
    engine.wait_open(1)
    assert 0.15 < source.idle_seconds < time.monotonic() - begun + 1


@pytest.mark.parametrize("name", ["Hang", "BlockingHang"])
def test_closing_does_not_wait_for_an_environment_that_hangs(engine, source, name, monkeypatch):
    monkeypatch.setattr("agentsgym.rollout.ahead.CLOSE_SECONDS", 0.2)
    monkeypatch.setattr("agentsgym.rollout.scheduler.JOIN_SECONDS", 0.1)
    requests = batch(name, 1)
    engine.allow(*requests)
    source.submit(requests)
    assert source.poll(0.1) == []
    source.close()
    source.close()
    with pytest.raises(RuntimeError, match="closed"):
        source.submit(requests)


def test_the_engine_is_left_when_its_open_action_has_ended(engine, source, monkeypatch):
    """Until then somebody else who polled it could lose an answer to the closed source."""
    monkeypatch.setattr("agentsgym.rollout.ahead.CLOSE_SECONDS", 0.01)
    requests = batch("Digit", 2)
    source.submit(requests)
    engine.wait_open(2)
    source.close()
    sleeper = threading.Timer(0.1, engine.allow, requests[:1])
    sleeper.start()
    source.wait_for_thread()
    assert sleeper.finished.is_set() and engine.open == {}


def test_an_error_of_the_engine_is_raised_after_the_finished_rollouts(engine, source):
    requests = batch("Digit", 2)
    source.submit(requests)
    engine.wait_open(2)
    engine.allow(requests[0])
    engine.wait_open(1)
    time.sleep(0.05)
    engine.allow(error=ConnectionError("the server is gone"))
    assert [r.group for r in source.poll()] == [0]
    source.use_weights(update(1))
    assert engine.policy_version == 1
    for call in (
        source.poll,
        lambda: source.submit(requests),
        lambda: source.play(requests, SAMPLING),
    ):
        with pytest.raises(ConnectionError, match="the server is gone"):
            call()


def test_each_action_has_the_version_of_its_weights(tiny_llama, chat_tokenizer):
    """Also the rollout's, which is that of the last one."""
    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=4)

    class Updated(CountdownEnv):
        def _step_episode(self, session_id, state, action):
            engine.policy_version += 3
            return super()._step_episode(session_id, state, action)

    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=2))
    env = Updated(chat_tokenizer)
    (rollout,) = env.run_trial([{"rewards": [0.0, 0.0, 1.0]}], agent).rollouts
    assert [step.policy_version for step in rollout.episodes[0].steps] == [0, 3, 6]
    assert rollout.policy_version == 6
