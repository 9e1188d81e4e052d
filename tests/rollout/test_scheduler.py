"""Many sessions over one real engine."""

import asyncio
import threading
import time
from typing import ClassVar

import pytest

from agentsgym import DirectOutputAgent, EnvPool, SamplingParams, register
from agentsgym.generation import remote
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.remote import RemoteEngine
from agentsgym.rollout import run
from agentsgym.types import GenerationResult, Message, ModelCall
from helpers import CHATML, CountdownEnv, DigitEnv, build_tokenizer, random_llama

SAMPLING = SamplingParams(max_tokens=5)


@pytest.fixture(autouse=True)
def names():
    register("Digit", DigitEnv)
    register("Countdown", CountdownEnv)


def rows(name, tasks, config=None):
    return [{"env_class_path": name, "env_config": config or {}, "task_data": t} for t in tasks]


@pytest.fixture
def agent(tiny_llama, chat_tokenizer):
    return DirectOutputAgent(EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=8), SAMPLING)


def fingerprint(batch):
    return [(row.token_ids.tolist(), row.logprobs.tolist()) for row in batch.rows]


def test_same_seed_same_rollouts_whoever_shares_the_batch(agent, tiny_llama, chat_tokenizer):
    tasks = rows("Digit", [{"seed": k} for k in range(6)])
    batch = run(tasks, agent, 4, seed=3)
    again = run(tasks, agent, 4, seed=3)
    assert [r.token_ids.tolist() for r in batch.rows] == [r.token_ids.tolist() for r in again.rows]
    assert [r.token_ids.tolist() for r in batch.rows] != [
        r.token_ids.tolist() for r in run(tasks, agent, 4, seed=4).rows
    ]
    narrow = DirectOutputAgent(EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=2), SAMPLING)
    few = run(tasks, narrow, 4, seed=3)
    assert [r.token_ids.tolist() for r in batch.rows] == [r.token_ids.tolist() for r in few.rows]


def test_sampled_ids_and_logprobs_reach_the_rows(agent, tiny_llama):
    import torch

    batch = run(rows("Digit", [{"seed": 1}]), agent, 3)
    for row in batch.rows:
        assert row.sampled
        logits = tiny_llama(torch.tensor([row.token_ids.tolist()])).logits[0].detach()
        logps = torch.log_softmax(logits, -1)
        for t, on in enumerate(row.agent_token_mask):
            expected = float(logps[t - 1, row.token_ids[t]]) if on else 0.0
            assert row.logprobs[t] == pytest.approx(expected, abs=1e-4)


def test_episodes_of_a_trial_do_not_repeat_the_noise(agent):
    config = {"episodes_per_trial": 3, "max_steps_per_episode": 1}
    batch = run(rows("Digit", [{"seed": 1}], config), agent)
    assert len({tuple(row.token_ids.tolist()) for row in batch.rows}) == 3


def test_slots_stay_busy(tiny_llama, chat_tokenizer):
    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=16)
    tasks = rows("Countdown", [{"rewards": [0.0] * (2 + k % 11)} for k in range(64)])
    run(tasks, DirectOutputAgent(engine, SAMPLING))
    assert engine.stats.occupancy > 0.8


def test_an_environment_has_no_more_sessions_than_it_takes(agent):
    at_once = {"Two": 0, "Three": 0}

    class Two(CountdownEnv):
        most_sessions = 2

        def _step_episode(self, session_id, state, action):
            name = type(self).__name__
            at_once[name] = max(at_once[name], len(self.active_states))
            return super()._step_episode(session_id, state, action)

    class Three(Two):
        most_sessions = 3

    register("Two", Two)
    register("Three", Three)
    tasks = [{"rewards": [0.0] * (1 + k % 3)} for k in range(8)]
    mixed = [
        row for pair in zip(rows("Two", tasks), rows("Three", tasks), strict=True) for row in pair
    ]
    batch = run(mixed, agent)
    assert not any(rollout.failed for rollout in batch.rollouts)
    assert at_once == {"Two": 2, "Three": 3}


def test_an_engine_error_ends_one_session(agent):
    """A context that is longer than the model's positions cannot be sampled from."""
    long = {"rewards": [0.0, 1.0]}

    class Chatty(CountdownEnv):
        def _format_prompt(self, state, step):
            return "word " * 2000 if step and len(state["rewards"]) == 3 else "go"

    register("Chatty", Chatty)
    batch = run(rows("Chatty", [long, {"rewards": [0.0] * 3}, long]), agent)
    assert [r.failed for r in batch.rollouts] == [False, True, False]
    assert batch.rollouts[1].session_id in batch.rollouts[1].error
    assert len(batch.rollouts[1].episodes[0].steps) == 1


def test_blocking_environments_step_side_by_side(agent):
    """Eight sessions that wait 0.1 s in each of two steps need far less than 1.6 s."""
    most = 0
    waiting = 0
    lock = threading.Lock()

    class Slow(CountdownEnv):
        blocking = True

        def _step_episode(self, session_id, state, action):
            nonlocal most, waiting
            with lock:
                waiting += 1
                most = max(most, waiting)
            time.sleep(0.1)
            with lock:
                waiting -= 1
            return super()._step_episode(session_id, state, action)

    register("Slow", Slow)
    tasks = [{"rewards": [0.0, 1.0]}] * 8
    batch = run(rows("Slow", tasks), agent)
    assert most > 2
    assert batch["final_rewards"] == [1.0] * 8
    assert [r.token_ids.tolist() for r in batch.rows] == [
        r.token_ids.tolist() for r in run(rows("Countdown", tasks), agent).rows
    ]


def test_pool_is_made_with_the_engines_tokenizer(agent, chat_tokenizer):
    batch = run(rows("Countdown", [{"rewards": [1.0]}]), agent)
    assert "go" not in chat_tokenizer.decode(batch["full_token_ids"][0])
    with pytest.raises(ValueError, match="num_rollouts"):
        run(rows("Countdown", [{}]), agent, 0)
    with pytest.raises(LookupError):
        run(rows("Nowhere", [{}]), agent)
    assert EnvPool().get(rows("Digit", [{}])[0]).name == "Digit"


class Slow(EmbeddedEngine):
    """Takes 3 ms more for a token, and ends no answer before its limit."""

    def _forward(self):
        self._is_stop[:] = False
        time.sleep(0.003)
        super()._forward()


class Remote(RemoteEngine):
    """Answers after 3 ms for each token that an answer may have."""

    def __init__(self, tokenizer):
        super().__init__(8, key=None, timeout=30, retries=None)
        self.tokenizer = tokenizer

    async def _answer(self, request):
        most = request.sampling.max_tokens
        await asyncio.sleep(0.003 * most)
        ids = tuple(self.tokenizer.encode("a")) * most
        return GenerationResult(request.session_id, ids, (-1.0,) * len(ids), "a", "length")


class Brief(CountdownEnv):
    """Steps in threads; the task says how long its answers may be."""

    blocking = True
    answered: ClassVar[list[int]] = []

    def _format_prompt(self, state, step):
        message = Message("user", "Go on.")
        return ModelCall((message,), max_tokens=state["most"])

    def _initialize_episode(self, session_id, task_data):
        return super()._initialize_episode(session_id, task_data) | {"most": task_data["most"]}

    def _step_episode(self, session_id, state, action):
        self.answered.append(state["most"])
        return super()._step_episode(session_id, state, action)


@pytest.mark.parametrize("kind", ["embedded", "remote"])
def test_a_session_whose_environment_answered_goes_on_while_others_are_sampled(kind, monkeypatch):
    monkeypatch.setattr(remote, "_WATCH_SECONDS", 60.0)  # the event ends the wait, not a look
    tokenizer = build_tokenizer(CHATML)
    engine = Remote(tokenizer) if kind == "remote" else Slow(random_llama(tokenizer), tokenizer)
    Brief.answered.clear()
    tasks = [{"most": 300, "rewards": [1.0]}, {"most": 2, "rewards": [0.0] * 5}]
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=400))
    batch = Brief(tokenizer).run_trial(tasks, agent)
    assert not any(rollout.error for rollout in batch.rollouts)
    assert Brief.answered == [2] * 5 + [300]
    if kind == "remote":
        engine.close()
