"""Environments in worker processes: the same rollouts, and faults that stay where they are."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from agentsgym import DirectOutputAgent, SamplingParams, ScriptedAgent
from agentsgym.envs import ConfigError
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout.processes.worker import stop_workers, workers
from helpers import CountdownEnv, DigitEnv
from misbehaving_env import MisbehavingEnv


@pytest.fixture(scope="module", autouse=True)
def _own_threads_and_workers():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # two would wait for each other where workers share the cores
    yield
    torch.set_num_threads(before)
    stop_workers()


@pytest.fixture
def engine_agent(tiny_llama, chat_tokenizer):
    sampling = SamplingParams(max_tokens=4)
    return DirectOutputAgent(EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=8), sampling)


def outcome(batch):
    """All that a batch says, but for what the environment told about its process."""
    rows = [(r.token_ids.tolist(), r.spans) for r in batch.rows]
    return rows, batch["final_rewards"], batch["final_completion_messages"], batch["session_ids"]


def logprobs(batch):
    """All logprobs; their last digits depend on who shares a forward pass."""
    return pytest.approx([p for row in batch.rows for p in row.logprobs], abs=1e-4)


def infos(batch):
    return [s.info for r in batch.rollouts for e in r.episodes for s in e.steps]


@pytest.mark.parametrize(
    "config",
    [
        {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"},
        {"episodes_per_trial": 2, "carry": "summary", "reflection_tokens": 6},
    ],
    ids=["carry full", "carry summary"],
)
def test_rollouts_are_those_of_the_process_itself(engine_agent, chat_tokenizer, config):
    tasks = [{"length": k} for k in (2, 5, 3)]
    here = MisbehavingEnv(chat_tokenizer, config).run_trial(tasks, engine_agent, 4, seed=1)
    for count in (1, 2):
        env = MisbehavingEnv(chat_tokenizer, {**config, "workers": count})
        there = env.run_trial(tasks, engine_agent, 4, seed=1)
        assert outcome(there) == outcome(here)
        assert logprobs(there).expected == logprobs(here)
        pids = {info["pid"] for info in infos(there) if info}
        assert len(pids) == count
        assert os.getpid() not in pids
        assert not env.active_states


def test_a_session_that_kills_its_worker_fails_alone():
    env = MisbehavingEnv(None, {"workers": 1})
    agent = ScriptedAgent(lambda messages: "die" if _killer(messages) else "fine")
    batch = env.run_trial([{"length": 3}, {"length": 4}, {"length": 3}], agent)
    expected = MisbehavingEnv().run_trial([{"length": 3}, {"length": 3}], ScriptedAgent(["fine"]))
    assert [r.failed for r in batch.rollouts] == [False, True, False]
    assert "exit status 3), 2 times in a row" in batch.rollouts[1].error
    assert [batch["final_rewards"][k] for k in (0, 2)] == expected["final_rewards"]


def _killer(messages):
    """Whether this is the second trial's third step (the trials are told apart by a count)."""
    _killer.calls += 1
    return _killer.calls == 6


_killer.calls = 0


def test_sessions_beside_a_killed_worker_are_replayed(engine_agent, chat_tokenizer, monkeypatch):
    tasks = [{"length": 4}, {"length": 5}]
    config = {"episodes_per_trial": 2, "carry": "full"}
    here = MisbehavingEnv(chat_tokenizer, config).run_trial(tasks, engine_agent, 4)
    worker = workers(1)[0]
    requests = []
    stock = type(worker).request

    def request(self, *arguments):
        requests.append(self.pid)
        if len(requests) in (20, 100):
            os.kill(self.pid, signal.SIGKILL)
        return stock(self, *arguments)

    monkeypatch.setattr(type(worker), "request", request)
    there = MisbehavingEnv(chat_tokenizer, {**config, "workers": 1}).run_trial(
        tasks, engine_agent, 4
    )
    assert outcome(there) == outcome(here)
    assert len(set(requests) - {None}) == 3


def test_a_hung_worker_is_replaced():
    env = MisbehavingEnv(None, {"workers": 1, "worker_timeout": 3.0})
    env.run_trial([{"length": 1}], ScriptedAgent(["warm"]))
    env = MisbehavingEnv(None, {"workers": 1, "worker_timeout": 0.4})
    before = workers(1)[0].pid
    batch = env.run_trial([{"length": 1}], ScriptedAgent(["hang"]))
    assert "no answer within 0.4 seconds" in batch.rollouts[0].error
    env = MisbehavingEnv(None, {"workers": 1})
    assert not env.run_trial([{"length": 1}], ScriptedAgent(["fine"])).rollouts[0].failed
    assert workers(1)[0].pid != before


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("exit", "the environment wants to leave"),
        ("interrupt", "KeyboardInterrupt: from the environment"),
        ("unsendable", "cannot pickle"),
    ],
)
def test_what_the_environment_raises_fails_its_session_only(action, message):
    env = MisbehavingEnv(None, {"workers": 1})
    env.run_trial([{"length": 1}], ScriptedAgent(["warm"]))
    before = workers(1)[0].pid
    batch = env.run_trial([{"length": 2}], ScriptedAgent(["fine", action]))
    assert message in batch.rollouts[0].error
    assert workers(1)[0].pid == before


def test_what_cannot_be_sent_is_named():
    env = MisbehavingEnv(None, {"workers": 1})
    env.lock = threading.Lock()
    env.generator = (k for k in range(3))
    with pytest.raises(ConfigError, match=r"workers.*must be 0"):
        env.run_trial([{}], ScriptedAgent(["x"]))

    class Own(MisbehavingEnv):
        def _run_complete_episode(self, session_id, agent):
            return {}

    with pytest.raises(ConfigError, match="_run_complete_episode"):
        Own(None, {"workers": 1}).run_trial([{}], ScriptedAgent(["x"]))


def test_an_object_goes_with_what_was_set_on_it():
    class Scaled(DigitEnv):
        def __init__(self, tokenizer=None, env_config=None, *, scale=1.0):
            super().__init__(tokenizer, env_config)
            self.scale = scale

        def _step_episode(self, session_id, state, action):
            state, reward, done, info = super()._step_episode(session_id, state, action)
            return state, reward * self.scale, done, info

    env = Scaled(None, {"workers": 1}, scale=0.5)
    assert env.run_trial([{"seed": 1}], ScriptedAgent(["7"]))["final_rewards"] == [0.5]
    env.scale = 0.25
    assert env.run_trial([{"seed": 1}], ScriptedAgent(["7"]))["final_rewards"] == [0.25]


def test_a_script_without_a_guard_defines_and_plays(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from agentsgym import MultistepEnv, ScriptedAgent
            print("top of the script", sys.argv[1:])
            BONUS = 2.0

            class Mine(MultistepEnv):
                def _initialize_episode(self, session_id, task_data):
                    return {"n": 0}

                def _format_prompt(self, state, step):
                    return "go"

                def _step_episode(self, session_id, state, action):
                    print("printed in a worker")
                    return {"n": state["n"] + 1}, BONUS, state["n"] == 1, {}

            batch = Mine(None, {"workers": 2}).run_trial([{}] * 3, ScriptedAgent(["x"]))
            print(batch["final_rewards"], [r.error for r in batch.rollouts])
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script), "--argument"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == [
        "top of the script ['--argument']",
        "[4.0, 4.0, 4.0] [None, None, None]",
    ], done.stderr
    assert "printed in a worker" in done.stderr


def test_a_worker_finds_modules_that_its_process_found_later(tmp_path, monkeypatch):
    agent = ScriptedAgent(["no", "no"])
    assert not CountdownEnv(None, {"workers": 1}).run_trial([{}], agent).rollouts[0].failed
    (tmp_path / "came_later.py").write_text(
        "from helpers import CountdownEnv\nclass LaterEnv(CountdownEnv):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from came_later import LaterEnv

    [rollout] = LaterEnv(None, {"workers": 1}).run_trial([{}], agent).rollouts
    assert rollout.error is None
