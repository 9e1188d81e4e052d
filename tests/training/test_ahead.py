"""Training in which sampling is up to `max_staleness` generations ahead."""

import copy
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TrainerCallback

from agentsgym.generation import EmbeddedEngine, EngineUnavailable
from agentsgym.generation.settings import EngineSettings
from agentsgym.training.batches import GenerationBatches, age
from agentsgym.training.branches import BranchPlan
from agentsgym.types import RolloutRequest, session_seed
from helpers import DigitEnv, random_llama, task_dataset
from of_rows import episode_of, rollout_of, step_of

OPTIONS = {"learning_rate": 1e-3, "max_steps": 5, "logging_steps": 1}


class CopyEngine(EmbeddedEngine):
    """May sample while the original is trained; answers what is open before it takes weights."""

    can_generate_ahead = True

    def __init__(self, model, tokenizer, **options):
        super().__init__(copy.deepcopy(model), tokenizer, **options)
        self.lock = threading.Lock()
        self.early = []

    def submit(self, requests):
        with self.lock:
            super().submit(requests)

    def poll(self):
        with self.lock:
            early, self.early = self.early, []
            return early or super().poll()

    def update_weights(self, update):
        with self.lock, torch.no_grad():
            while self._requests:
                self.early += super().poll()
            pairs = zip(self.model.parameters(), update.model.parameters(), strict=True)
            for ours, trained in pairs:
                ours.copy_(trained)
            self.reset()
            self.policy_version = update.version


def check_steps(trainer, ahead):
    """Each batch is its generation, in the order of the requests, and none is too old."""
    for step, rollouts in trainer.played.steps().items():
        places = [(2 * step + group, index) for group in range(2) for index in range(4)]
        assert [(r.group, r.index) for r in rollouts] == places
        assert not any(r.failed for r in rollouts)
        assert all(step - ahead <= r.policy_version <= step for r in rollouts)
        for rollout in rollouts:
            versions = [step.policy_version for e in rollout.episodes for step in e.steps]
            assert versions == sorted(versions) and versions[-1] == rollout.policy_version


def check_noise(trainer):
    """Each rollout has the task and the seed of its place in its generation."""
    for rollout in trainer.played.rollouts():
        generation, group = divmod(rollout.group, 2)
        task = trainer.tasks.generation(generation)[group]["task_data"]
        assert rollout.task_data == task
        assert rollout.seed == session_seed(42, "train", generation, group, rollout.index)


@pytest.fixture
def ahead(make_trainer, chat_tokenizer):
    """Returns a function that makes a trainer."""

    def make(**options):
        model = random_llama(chat_tokenizer)
        engine = CopyEngine(model, chat_tokenizer, capacity=3)
        return make_trainer(model=model, engine=engine, **(OPTIONS | options))

    return make


@pytest.mark.parametrize("staleness", [1, 2])
def test_batches_are_whole_groups_that_are_not_too_old(ahead, staleness):
    trainer = ahead(max_staleness=staleness)
    trainer.train()
    check_steps(trainer, staleness)
    check_noise(trainer)
    log = [entry for entry in trainer.state.log_history if "staleness" in entry]
    assert len(log) == 5 and log[0]["staleness"] == 0
    assert max(entry["staleness/max"] for entry in log) <= staleness
    for entry in log[1:]:
        assert 0 <= entry["ahead/learner_waited"] <= 1 and 0 <= entry["ahead/sampler_waited"] <= 1
        assert 0 < entry["sampler/ratio_ess"] <= 1
    assert not any(thread.name == "agentsgym-rollouts" for thread in threading.enumerate())


def test_an_evaluation_samples_from_the_current_weights(ahead, chat_tokenizer):
    """And its rollouts come into no batch."""
    tasks = task_dataset(DigitEnv(chat_tokenizer), [{"seed": 100 + k} for k in range(3)])
    trainer = ahead(max_staleness=2, eval_dataset=tasks, eval_strategy="steps", eval_steps=2)
    trainer.train()
    check_steps(trainer, 2)
    versions = {
        step: [r.policy_version for r in rollouts]
        for step, rollouts in trainer.played.steps("eval").items()
    }
    assert versions == {step: [step] * 3 for step in (2, 4, 5)}
    assert all(r.task_data["seed"] < 100 for r in trainer.played.rollouts())


def test_a_resumed_run_goes_on_with_the_generation_of_its_step(ahead, tmp_path):
    """No task is lost, however far ahead it plays now."""
    saving = {"save_strategy": "steps", "save_steps": 1, "max_steps": 4}
    trainer = ahead(max_staleness=2, **saving)
    trainer.add_callback(_StopAt(2))
    trainer.train()
    check_steps(trainer, 2)
    for staleness in (3, 1, 0):
        trainer = ahead(max_staleness=staleness, **saving)
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
        assert list(trainer.played.steps()) == [2, 3]
        if staleness:
            check_steps(trainer, staleness)
            check_noise(trainer)


class _StopAt(TrainerCallback):
    def __init__(self, step):
        self._step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self._step


def test_a_trainer_that_stopped_early_goes_on_with_its_engine(ahead, monkeypatch):
    """When the action that was being sampled has ended: only one thread polls the engine."""
    monkeypatch.setattr("agentsgym.rollout.ahead.CLOSE_SECONDS", 0.0)
    trainer = ahead(max_staleness=2)
    trainer.add_callback(_StopAt(1))
    engine, polling, together = trainer.collector.engine, [], []

    def poll():
        polling.append(1)
        together.append(len(polling))
        time.sleep(0.1)
        results = CopyEngine.poll(engine)
        polling.pop()
        return results

    engine.poll = poll
    trainer.train()
    metrics = trainer.evaluate(trainer.train_dataset.select(range(2)))
    assert "eval_reward" in metrics and set(together) == {1}


def test_an_error_while_playing_ends_training_with_its_reason(ahead):
    trainer = ahead(max_staleness=2)
    engine, polls = trainer.collector.engine, []

    def poll():
        polls.append(1)
        if len(polls) > 20:
            raise ConnectionError("the server is gone")
        return CopyEngine.poll(engine)

    engine.poll = poll
    with pytest.raises(ConnectionError, match="the server is gone"):
        trainer.train()


class _Scripted:
    """A source that ends one rollout at a `poll`, in an order that the test draws."""

    idle_seconds = 0.0

    def __init__(self, draw):
        self.draw, self.submitted, self.open = draw, [], []

    def submit(self, requests):
        self.submitted.append(len(requests))
        self.open += requests

    def poll(self, timeout=None):
        if timeout == 0.0 or not self.open:
            return []
        return [_over(self.open.pop(self.draw(st.integers(0, len(self.open) - 1))))]


def _over(request, version=0, error=None):
    game = episode_of(step_of(0, "go", "a", 1.0, True, policy_version=version))
    return rollout_of(
        [game], group=request.group, index=request.index, env="Digit",
        session_id=request.session_id, error=error,
    )  # fmt: skip


def _requests_of(number):
    row = {"env_class_path": "Digit", "env_config": {}, "task_data": {}}
    groups = (2 * number, 2 * number + 1)
    return [RolloutRequest.of(row, group, k, 100 * group + k) for group in groups for k in range(3)]


@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(0, 3))
def test_batches_are_generations_in_whatever_order_their_rollouts_end(data, ahead, first):
    source = _Scripted(data.draw)
    args = SimpleNamespace(
        max_staleness=ahead, updates_per_generation=1, generation_batch_size=6, num_generations=3
    )
    args.branches, args.branch_where = 0, "first"
    collector = SimpleNamespace(
        source=source, close_source=lambda: None, train_requests=lambda rows, step, group: rows
    )
    tasks = SimpleNamespace(generation=_requests_of)
    alone = SimpleNamespace(together=lambda act: act())
    branches = BranchPlan(args, alone, dict)
    batches = GenerationBatches(args, tasks, collector, alone, lambda step: None, None, branches)
    for number in range(first, first + 4):
        requests, rollouts = batches.next(number, first + 4)
        assert requests == _requests_of(number)
        assert [r.session_id for r in rollouts] == [r.session_id for r in requests]
    assert source.submitted[0] == 6 * (min(ahead, 3) + 1) and sum(source.submitted) == 24
    assert not source.open


def test_a_failed_rollout_has_no_age():
    request = _requests_of(0)[0]
    assert age(_over(request, 2), 6, 2) == 2.0
    assert age(_over(request, 2, error="it broke"), 6, 2) == 0.0


SERVED = EngineSettings(launch=1, command="serve-model", capacity=8)


@pytest.mark.slow
def test_a_launched_server_may_be_ahead_and_its_death_ends_the_training(
    make_trainer, chat_tokenizer
):
    trainer = make_trainer(
        model=random_llama(chat_tokenizer), engine_section=SERVED, max_staleness=2, **OPTIONS
    )
    trainer.train()
    check_steps(trainer, 2)
    played = trainer.played.steps().items()
    assert any(r.policy_version < step for step, rollouts in played for r in rollouts)
    logs = [entry for entry in trainer.state.log_history if "sampler/logp_difference" in entry]
    assert logs[0]["sampler/logp_difference"] < 1e-5
    trainer.add_callback(_KillServerAt(2))
    with pytest.raises(EngineUnavailable, match="no vLLM server answers"):
        trainer.train()


class _KillServerAt(TrainerCallback):
    """Kills the server under its keeper, a child of this process."""

    def __init__(self, step):
        self._step = step

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step == self._step:
            for child in psutil.Process().children(recursive=True):
                if "--key-env" in child.cmdline() and "keeper.py" not in str(child.cmdline()):
                    child.kill()
