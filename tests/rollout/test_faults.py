"""Environments, requests and servers that fail at random points of a run.

The run ends, rollouts that nothing happened to are there and as they would have been, and each one
that is lost says why. The faults are drawn from a seed; how they fall together is not.
"""

import copy
import random
import threading
import time

import pytest

from agentsgym import DirectOutputAgent, SamplingParams, register
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.http import Retries
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.rollout import run
from completions_server import CompletionsServer
from helpers import CountdownEnv

SAMPLING = SamplingParams(max_tokens=5)
ROLLOUTS = 4
PATIENT = Retries(attempts=15, first_delay=0.02, longest_delay=0.4)


class FragileEnv(CountdownEnv):
    """Raises where the test says so."""

    breaks: frozenset = frozenset()  # of (group, rollout, step)

    def _step_episode(self, session_id, state, action):
        group, rollout, _ = session_id.split("-")
        if (int(group), int(rollout), len(state["played"])) in self.breaks:
            raise RuntimeError("the environment was killed")
        return super()._step_episode(session_id, state, action)


@pytest.fixture
def tasks():
    register("Fragile", FragileEnv)
    yield [
        {
            "env_class_path": "Fragile",
            "env_config": {},
            "task_data": {"rewards": [0.0] * (2 + k % 3)},
        }
        for k in range(12)
    ]
    FragileEnv.breaks = frozenset()


def draw_breaks(rng, tasks, number):
    """Different rollouts, each with a step in which its environment is killed."""
    places = [(group, index) for group in range(len(tasks)) for index in range(ROLLOUTS)]
    chosen = rng.sample(places, number)
    steps = [len(tasks[group]["task_data"]["rewards"]) for group, _ in chosen]
    return frozenset(
        (*place, rng.randrange(length)) for place, length in zip(chosen, steps, strict=True)
    )


def assert_others_unchanged(batch, clean):
    """All rollouts are there; the ones that did not fail equal those of a run without faults."""
    assert [r.session_id for r in batch.rollouts] == [r.session_id for r in clean.rollouts]
    for ours, theirs in zip(batch.rollouts, clean.rollouts, strict=True):
        if ours.failed:
            assert not any(any(row.agent_token_mask) for row in ours.rows)
            continue
        assert [row.token_ids.tolist() for row in ours.rows] == [
            row.token_ids.tolist() for row in theirs.rows
        ]
        assert [row.agent_token_mask.tolist() for row in ours.rows] == [
            row.agent_token_mask.tolist() for row in theirs.rows
        ]
        assert ours.final_reward == theirs.final_reward
        for row, other in zip(ours.rows, theirs.rows, strict=True):
            assert row.logprobs.tolist() == pytest.approx(other.logprobs.tolist(), abs=1e-4)


class Weather:
    """Draws what goes wrong with a server's completions, and counts it."""

    KINDS = ("error", "busy", "cut", "stall", "garbage")

    def __init__(self, rng, share):
        self._rng = rng
        self._share = share
        self._lock = threading.Lock()
        self.counts = dict.fromkeys((*self.KINDS, "death"), 0)
        self.servers = []
        self.deaths_at = ()
        self._asked = 0

    def fault_of(self, index):
        def fault(_):
            with self._lock:
                self._asked += 1
                if self._asked in self.deaths_at:
                    self._die(self.servers[index])
                    return "cut"
                if self._rng.random() > self._share:
                    return None
                kind = self._rng.choices(self.KINDS, weights=(6, 6, 6, 1, 2))[0]
                self.counts[kind] += 1
                return kind

        return fault

    def _die(self, server):
        """Cut everything now; listen again a moment later."""
        self.counts["death"] += 1
        server.die_soon()
        threading.Timer(0.4, server.start).start()


@pytest.mark.timeout(240)
def test_servers_connections_and_environments_fail(tasks, tiny_llama, chat_tokenizer):
    rng = random.Random(5)
    weather = Weather(rng, share=0.3)
    plain = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=16)
    calm = CompletionsServer(plain)
    clean_engine = VLLMEngine(calm.url, chat_tokenizer, capacity=24)
    clean = run(tasks, DirectOutputAgent(clean_engine, SAMPLING), ROLLOUTS)
    assert not any(r.failed for r in clean.rollouts)
    clean_engine.close()
    calm.close()
    weather.deaths_at = (25, 60, 95)
    for index in range(2):
        inner = EmbeddedEngine(copy.deepcopy(tiny_llama), chat_tokenizer, capacity=16)
        weather.servers.append(CompletionsServer(inner, weather.fault_of(index), stall_seconds=60))
    engine = VLLMEngine(
        [server.url for server in weather.servers],
        chat_tokenizer,
        capacity=24,
        request_timeout=3.0,
        retries=PATIENT,
    )
    FragileEnv.breaks = draw_breaks(rng, tasks, 8)
    started = time.monotonic()
    batch = run(tasks, DirectOutputAgent(engine, SAMPLING), ROLLOUTS)
    seconds = time.monotonic() - started
    engine.close()
    for server in weather.servers:
        server.close()

    assert sum(weather.counts.values()) + len(FragileEnv.breaks) >= 50, weather.counts
    assert weather.counts["death"] == 3
    assert seconds < 200
    errors = [rollout.error for rollout in batch.rollouts if rollout.failed]
    by_env = [error for error in errors if "environment was killed" in error]
    by_request = [error for error in errors if "token_ids" in error]
    # Only what no retry mends costs a rollout: answers without tokens, and broken environments.
    assert len(by_env) + len(by_request) == len(errors), errors
    assert len(by_env) <= len(FragileEnv.breaks)
    assert 0 < len(by_request) <= weather.counts["garbage"]
    assert_others_unchanged(batch, clean)
