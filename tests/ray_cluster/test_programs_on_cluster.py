"""Whole programs with actors on Ray: the command line, Ctrl-C in it, and two learners."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import yaml
from nodes import actor_processes, at_number, free_cpus, ray

import helpers
from agentsgym.generation.embedded.engine import EmbeddedEngine
from completions_server import CompletionsServer
from helpers import random_llama
from ray_cluster import two_learners
from training import learner
from training.two import run_two
from vllm_program import assert_gone

pytestmark = [pytest.mark.doors, pytest.mark.usefixtures("cluster")]

RUN = {
    "env": "digit.DigitEnv",
    "model": "model",
    "threads": 1,
    "train": {
        "max_steps": 4,
        "per_device_train_batch_size": 16,
        "num_generations": 8,
        "max_action_tokens": 6,
        "learning_rate": 1e-2,
        "save_steps": 100,
        "use_cpu": True,
    },
    "ray": {"workers": 2},
    "eval": {"rollouts": 8},
}
SAME = ("step", "loss", "reward", "grad_norm")


def serving(model, tokenizer):
    """It samples one request at a time, so that answers do not depend on who asks beside it."""
    return CompletionsServer(EmbeddedEngine(model, tokenizer, capacity=1), follow=True)


@pytest.fixture(scope="module")
def server(chat_tokenizer):
    made = serving(random_llama(chat_tokenizer).eval(), chat_tokenizer)
    yield made
    made.close()


@pytest.fixture(scope="module")
def place(server, chat_tokenizer, tmp_path_factory):
    """A folder as a user has it: a model, an environment in a module, a run file."""
    folder = tmp_path_factory.mktemp("place")
    random_llama(chat_tokenizer).save_pretrained(folder / "model")
    chat_tokenizer.save_pretrained(folder / "model")
    shutil.copy(helpers.__file__, folder / "digit.py")
    run = {**RUN, "engine": {"urls": [server.url]}}
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    return folder


@pytest.fixture(scope="module")
def train(place, cluster):
    """Starts `agentsgym train` in the folder; returns the process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": cluster.address}

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "agentsgym", "train", *arguments],
            cwd=place,
            env=environment | {"COLUMNS": "200", "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell's background jobs ignore Ctrl-C, and so would the program.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return start


@pytest.fixture(scope="module")
def whole(train, place):
    """The steps of a run that nothing disturbs."""
    program = train("run.yaml", "output_dir=whole")
    output, _ = program.communicate(timeout=300)
    assert program.returncode == 0, output
    return steps_of(place / "whole")


def in_step(step, server, act):
    """A fault of the server that calls `act` while that step is played, before which it gets
    weights."""
    before, act_once = len(server.loaded), at_number(4, act)
    return lambda number: act_once(number) if len(server.loaded) - before >= step else None


def steps_of(folder):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "reward" in line and "loss" in line]


def alike(steps):
    return [{key: step[key] for key in SAME} for step in steps]


def test_a_run_with_workers_equals_one_without(whole, train, place):
    assert len(whole) == 4
    assert all(1 <= step["ray/alive"] <= 2 for step in whole)
    program = train("run.yaml", "output_dir=here", "ray.workers=0")
    output, _ = program.communicate(timeout=300)
    assert program.returncode == 0, output
    here = steps_of(place / "here")
    assert alike(here) == alike(whole) and "ray/alive" not in here[0]
    assert not actor_processes()
    assert free_cpus() == ray().cluster_resources()["CPU"]


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_leaves_nothing_and_the_run_resumes(
    whole, train, place, server, monkeypatch, presses
):
    """It is pressed while the third step is played: once, and the step ends; twice, and it does
    not."""
    name = f"stopped{presses}"
    running = []
    program = None

    def press():
        running.extend(actor_processes())
        for _ in range(presses):
            program.send_signal(signal.SIGINT)

    monkeypatch.setattr(server, "fault", in_step(3, server, press))
    program = train("run.yaml", f"output_dir={name}", "train.save_steps=1")
    output, _ = program.communicate(timeout=300)
    assert program.returncode == 130, output
    assert "Traceback" not in output and running
    assert_gone([*running, *actor_processes()])
    assert free_cpus() == ray().cluster_resources()["CPU"]
    assert 1 <= len(steps_of(place / name)) < 4
    monkeypatch.undo()
    program = train("run.yaml", "--resume", "--output", name)
    output, _ = program.communicate(timeout=300)
    assert program.returncode == 0, output
    assert alike(steps_of(place / name)) == alike(whole)


def test_two_learners_have_workers_of_their_own(cluster, chat_tokenizer, tmp_path, monkeypatch):
    """They play the rollouts of one process without workers, and make the same gradients."""
    server = serving(learner.tiny_model(chat_tokenizer).eval(), chat_tokenizer)
    monkeypatch.setenv(two_learners.SERVERS, server.url)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    try:
        first, second = run_two("ray_cluster.two_learners", tmp_path)
        one = two_learners.trained(chat_tokenizer, tmp_path / "one", 1)
    finally:
        server.close()
    assert first["played"] | second["played"] == one["played"]
    assert not set(first["played"]) & set(second["played"])
    assert first["versions"] | second["versions"] == one["versions"] == {0, 1}
    assert min(*first["alive"], *second["alive"]) >= 1 and one["alive"] == [None, None]
    for mine, alone in zip(first["gradients"], one["gradients"], strict=True):
        assert float((mine - alone).norm() / alone.norm()) < 1e-5
    assert not actor_processes()
    assert free_cpus() == ray().cluster_resources()["CPU"]
