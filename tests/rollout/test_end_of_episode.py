"""`_end_episode` is called exactly once for each episode that began, however it ends."""

import gc
import logging
import threading
import time

import pytest
from doubles import EndingEnv, TextEngine

from agentsgym import DirectOutputAgent, SamplingParams, ScriptedAgent
from agentsgym.rollout import run as run_rows
from agentsgym.rollout.processes.worker import stop_workers
from agentsgym.rollout.session import Session
from agentsgym.rollout.stepping import SteppedTrial
from agentsgym.rollout.trial import play_trial
from agentsgym.types import GenerationResult, RolloutRequest


class FlakyEngine(TextEngine):
    """The request number `fails` gets an error, or an interrupt."""

    def __init__(self, tokenizer, fails=None, interrupt=False):
        super().__init__(tokenizer)
        self.fails, self.interrupts, self.number = fails, interrupt, 0

    def answer(self, request):
        self.number += 1
        if self.number != self.fails:
            return super().answer(request)
        if self.interrupts:
            raise KeyboardInterrupt
        return GenerationResult(request.session_id, finish_reason="error", error="broken")


def play(env, task, engine=None, **options):
    agent = ScriptedAgent(["a"]) if engine is None else DirectOutputAgent(engine, SamplingParams())
    return env.run_trial([task], agent, **options)


@pytest.mark.parametrize("trial", [{}, {"episodes_per_trial": 3, "carry": "full"}], ids=str)
@pytest.mark.parametrize("task", [{"length": 2}, {"length": 99}], ids=["done", "limit"])
@pytest.mark.parametrize("engine", [False, True])
def test_done_or_at_a_limit(chat_tokenizer, trial, task, engine):
    env = EndingEnv(chat_tokenizer, trial)
    play(env, task, FlakyEngine(chat_tokenizer) if engine else None, num_rollouts=2)
    assert env.ended() == env.begun() == 2 * env.config.episodes_per_trial
    assert not env.active_states


@pytest.mark.parametrize("fault", ["prompt", "step", "exit", "reward", "begin"])
@pytest.mark.parametrize("episode", [0, 1])
def test_an_exception_of_the_environment(fault, episode):
    env = EndingEnv(None, {"episodes_per_trial": 2})
    batch = play(env, {"length": 2, "fault": fault, "episode": episode})
    assert batch.rollouts[0].failed
    # A first state that was never returned is its author's to close.
    assert env.ended() == env.begun() == episode + (fault != "begin")


@pytest.mark.parametrize("interrupt", [False, True])
@pytest.mark.parametrize("fails", [1, 2, 4])
def test_an_exception_or_an_interrupt_of_the_engine(chat_tokenizer, fails, interrupt):
    env = EndingEnv(chat_tokenizer)
    engine = FlakyEngine(chat_tokenizer, fails, interrupt)
    agent = DirectOutputAgent(engine, SamplingParams())
    try:
        env.run_trial([{"length": 3}] * 3, agent)
    except KeyboardInterrupt:
        assert interrupt
    assert env.ended() == env.begun() > 0 and not env.active_states


def test_a_budget_without_room_for_the_first_prompt(chat_tokenizer):
    env = EndingEnv(chat_tokenizer, {"episodes_per_trial": 2})
    row = {"env_class_path": env.class_path, "env_config": env.env_config, "task_data": {}}
    agent = DirectOutputAgent(FlakyEngine(chat_tokenizer), SamplingParams())
    batch = run_rows([row], agent, envs=[env], max_rollout_tokens=2)
    assert batch.rollouts[0].episodes[0].stop_reason == "max_rollout_tokens"
    assert env.ended() == env.begun() == 2


def test_an_abandoned_generator_and_one_that_never_started():
    env = EndingEnv()
    request = RolloutRequest(env.class_path, {}, {}, 0, 0, 0, "one")
    never, started = play_trial(Session(env, request)), play_trial(Session(env, request))
    next(started)
    assert (env.begun(), env.ended()) == (1, 0)
    del never, started
    gc.collect()
    assert (env.begun(), env.ended()) == (1, 1)


@pytest.mark.parametrize("end", [SteppedTrial.close, lambda t: t.cut("x"), lambda t: t.act("a")])
def test_a_stepped_trial(end):
    env = EndingEnv()
    trial = SteppedTrial(env, {"length": 1})
    end(trial)
    trial.close()
    del trial
    assert env.ended() == env.begun() == 1


def test_a_blocking_environment_that_hangs_when_the_run_is_cancelled(chat_tokenizer):
    class Hanging(EndingEnv):
        blocking = True
        goes_on = threading.Event()

        def _step_episode(self, session_id, state, action):
            if state["task"].get("hangs"):
                self.goes_on.wait(30)
            return super()._step_episode(session_id, state, action)

    class Interrupted(FlakyEngine):
        def poll(self):
            if self.number >= 4:
                raise KeyboardInterrupt
            return super().poll()

    env = Hanging(chat_tokenizer)
    agent = DirectOutputAgent(Interrupted(chat_tokenizer), SamplingParams())
    tasks = [{"length": 50}, {"length": 50}, {"hangs": True}]
    with pytest.raises(KeyboardInterrupt):
        env.run_trial(tasks, agent)
    env.goes_on.set()
    deadline = time.monotonic() + 60
    while env.ended() < env.begun() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert env.ended() == env.begun() == 3


def test_an_environment_that_goes_on_with_the_last_state_ends_it_once():
    class GoesOn(EndingEnv):
        def _begin_episode(self, session_id, task_data, trial):
            last = trial.last_state
            return super()._begin_episode(session_id, task_data, trial) if last is None else last

    env = GoesOn(None, {"episodes_per_trial": 3})
    play(env, {"length": 2})
    assert env.ended() == env.begun() == 1


def test_a_failing_hook_is_logged_and_changes_no_rollout(caplog):
    class Bad(EndingEnv):
        def _end_episode(self, session_id, state):
            super()._end_episode(session_id, state)
            raise OSError("cannot close")

    env = Bad(None, {"episodes_per_trial": 2})
    with caplog.at_level(logging.WARNING):
        batch = play(env, {"length": 1})
    assert not batch.rollouts[0].failed and env.ended() == 2
    assert "_end_episode failed" in caplog.text and "cannot close" in caplog.text


@pytest.mark.parametrize(
    ("task", "begun"),
    [({}, 2), ({"fault": "step"}, 1), ({"fault": "begin", "episode": 1}, 1), ({"fault": "die"}, 2)],
    ids=str,
)
def test_in_worker_processes(tmp_path, task, begun):
    """A worker that dies takes its sessions along; the replay in its successor ends as well."""
    log = tmp_path / "log"
    env = EndingEnv(None, {"episodes_per_trial": 2, "workers": 1})
    try:
        play(env, {"length": 2, "log": str(log), **task})
        lines = log.read_text().split()
    finally:
        stop_workers()
    lost = 1 if task.get("fault") == "die" else 0
    assert lines.count("begin") == begun + lost
    assert lines.count("end") == lines.count("begin") - lost
