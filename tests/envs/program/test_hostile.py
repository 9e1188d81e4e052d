"""Programs that do harm: each ends its own rollout at most, with a sentence, and leaves nothing."""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
import pytest

from agentsgym import DirectOutputAgent, SamplingParams, make
from agentsgym.envs.program.run import program_server
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout.processes.worker import stop_workers
from envs.program.programs import CALL, POST, TOKENIZER, ask, program
from helpers import random_llama, wait_until
from noise_engine import HELD, NoiseEngine


def agent_of(engine):
    return DirectOutputAgent(engine, SamplingParams(max_tokens=4))


@pytest.fixture
def agent():
    return agent_of(NoiseEngine(TOKENIZER))


def post(client, reward):
    return POST(f"{client.session_url}/reward", content=reward).status_code


# -- rewards -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", [b"NaN", b"1e999", b"1e31", b"true", b"9" * 400])
def test_a_posted_reward_that_is_no_number_for_training_is_refused(agent, reward):
    def play(task, client):
        ask(client, "Go?")
        return post(client, b'{"reward": %s}' % reward)

    assert program(play).run_trial([{}], agent).rollouts[0].final_reward == 400


# -- calls ---------------------------------------------------------------------------------------


def test_200_parallel_calls_are_200_rows_and_change_nothing_for_others():
    def play(task, client):
        if not task["many"]:
            return float(len([ask(client, f"{number}?") for number in range(3)]))
        with ThreadPoolExecutor(200) as pool:
            return float(len(list(pool.map(lambda n: ask(client, f"{n}?"), range(200)))))

    env = program(play, max_steps_per_episode=200)
    model = random_llama(TOKENIZER)
    tasks = [{"many": False}, {"many": True}, {"many": False}]
    batch = env.run_trial(tasks, agent_of(EmbeddedEngine(model, TOKENIZER)))
    first, many, third = batch.rollouts
    assert many.final_reward == 200 and many.error is None
    assert len(many.rows) == len(many.episodes[0].steps) == 200
    assert [row.begins for row in many.rows] == ["episode"] + ["conversation"] * 199
    calm = [task | {"many": False} for task in tasks]
    alone = env.run_trial(calm, agent_of(EmbeddedEngine(model, TOKENIZER))).rollouts
    for one, other in ((first, alone[0]), (third, alone[2])):
        for row, same in zip(one.rows, other.rows, strict=True):
            assert np.array_equal(row.token_ids, same.token_ids)
            assert np.allclose(row.logprobs, same.logprobs, atol=1e-5)


# -- what stays ----------------------------------------------------------------------------------


def held():
    """How many threads, sockets and files this process has open."""
    return threading.active_count(), psutil.Process().num_fds()


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_after_many_sessions_nothing_is_left(agent, rounds):
    engine = agent.engine

    def play(task, client):
        with httpx.Client(timeout=60, verify=False) as fresh:
            ask(client, "Go?", fresh.post)
        if task["number"] % 5 == 0:  # a call whose answer nobody reads
            asked = f"{HELD}{client.api_key}"
            body = {"model": "any", "messages": [{"role": "user", "content": asked}]}
            url = urlsplit(client.base_url)
            connection = http.client.HTTPConnection(url.hostname, url.port)
            headers = {"Authorization": f"Bearer {client.api_key}"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            assert engine.arrived[asked].wait(20)
            connection.close()
            engine.let_go(asked)
        if task["number"] % 3 == 0:
            raise RuntimeError("broken")
        return 1.0

    env = program(play)

    def play_some():
        return env.run_trial([{"number": number} for number in range(50)], agent).rollouts

    play_some()
    time.sleep(0.5)
    before, server = held(), program_server()
    for _ in range(rounds):
        assert sum(rollout.failed for rollout in play_some()) == 17
    wait_until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
    wait_until(lambda: not server._runs and not any(server._exchanges._kept.values()))


# -- commands ------------------------------------------------------------------------------------

RUN = "import json, os; s = json.loads(os.environ['AGENTSGYM_TASK'])['script']; "
RUN += "os.execvp('sh', ['sh', '-c', s])"
DAEMON = "setsid sh -c 'trap \"\" TERM HUP; sleep 300' >/dev/null 2>&1 </dev/null & "
SCRIPTS = {
    "killed": (CALL + "kill -9 $$", "exit status"),
    "daemon": (DAEMON + CALL + "echo 1", None),
    "daemon that holds the output": ("setsid sleep 300 & " + CALL + "echo 1", None),
    "daemon of a daemon": (
        "(setsid sh -c 'setsid sleep 300 & sleep 300' &) ; " + CALL + "echo 1", None
    ),
    "daemon that hangs": (DAEMON + CALL + "sleep 300", "time_limit=4 s"),
    "much output": (CALL + "head -c 100000000 /dev/zero; echo; echo 1", None),
    "no output": ("exec >&- 2>&-; " + CALL + "echo 1 > $AGENTSGYM_REWARD_FILE", None),
    "stays after TERM": ("trap '' TERM; " + CALL + "while :; do sleep 1; done", "time_limit=4 s"),
    "kills its keeper": (CALL + "kill -9 $PPID; exec sleep 300", "exit status -9"),
    "calls on": (CALL * 3 + "while :; do " + CALL + "done", None),
}  # fmt: skip


@pytest.mark.slow
def test_commands_that_do_harm_leave_no_process(agent, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", RUN]
    env = make(
        "Program", TOKENIZER, {"command": command, "time_limit": 4.0, "max_steps_per_episode": 3}
    )
    mine = psutil.Process()
    tasks = [{"script": script} for script, _ in SCRIPTS.values()]
    mark = f"hostile-{os.getpid()}"
    monkeypatch.setenv("HOSTILE_MARK", mark)
    rollouts = env.run_trial(tasks, agent).rollouts
    for (name, (_, error)), rollout in zip(SCRIPTS.items(), rollouts, strict=True):
        if error is None:
            assert rollout.error is None, (name, rollout.error)
            assert rollout.final_reward == (0.0 if name == "calls on" else 1.0), name
        else:
            assert error in rollout.error, (name, rollout.error)
    wait_until(lambda: not _marked(mark))
    assert not mine.children(recursive=True)
    wait_until(lambda: not list(tmp_path.iterdir()))


def _marked(mark):
    """The processes that inherited the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOSTILE_MARK") == mark and process.status() != "zombie":
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


TRAINER = """
import sys
from agentsgym import DirectOutputAgent, SamplingParams, make
from envs.program.test_hostile import TOKENIZER, NoiseEngine, agent_of
env = make("Program", TOKENIZER, {"command": ["sh", "-c", sys.argv[1]]})
env.run_trial([{}, {}], agent_of(NoiseEngine(TOKENIZER)))
"""


@pytest.mark.slow
def test_the_programs_of_a_killed_trainer_end(tmp_path):
    script = DAEMON + CALL + f"echo . >> {tmp_path}/ready; sleep 300"
    mark = f"trainer-{os.getpid()}"
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, script], env={**os.environ, "HOSTILE_MARK": mark}
    )
    ready = tmp_path / "ready"
    wait_until(lambda: ready.is_file() and len(ready.read_text()) == 4, 60)
    assert len(_marked(mark)) > 4
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    wait_until(lambda: not _marked(mark))


KILL_WORKER = "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); "


@pytest.mark.slow
def test_programs_of_a_killed_worker_run_again(agent, tmp_path):
    calm = CALL + CALL + "echo 1"
    once = CALL + f"mkdir {tmp_path}/once 2> /dev/null && {KILL_WORKER} " + CALL + "echo 1"
    config = {"command": [sys.executable, "-c", RUN], "workers": 2}
    env = make("Program", TOKENIZER, config)
    tasks = [{"script": script} for script in (calm, once, calm, calm)]
    rollouts = env.run_trial(tasks, agent).rollouts
    assert (tmp_path / "once").is_dir()
    assert [rollout.error for rollout in rollouts] == [None] * 4
    assert [len(rollout.episodes[0].steps) for rollout in rollouts] == [2] * 4
    expected = env.run_trial([{"script": calm}] * 4, agent).rollouts
    for one, other in zip(rollouts, expected, strict=True):
        for row, same in zip(one.rows, other.rows, strict=True):
            assert np.array_equal(row.token_ids, same.token_ids) and row.begins == same.begins
    always = CALL + KILL_WORKER + CALL + "echo 1"
    rollouts = env.run_trial([{"script": script} for script in (calm, always)], agent).rollouts
    assert rollouts[0].error is None, rollouts[0].error
    assert "the worker process died" in rollouts[1].error
    stop_workers()
    wait_until(lambda: not psutil.Process().children(recursive=True))
