"""Servers that a run starts itself: ready, or one sentence; and nothing left running afterwards."""

import os
import subprocess
import sys
from unittest.mock import Mock

import pytest

from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.generation.vllm import launcher
from agentsgym.generation.vllm.launcher import (
    Device,
    LaunchFailed,
    NoCommand,
    VLLMServers,
    devices_for,
    find_program,
    serve_command,
    serve_environment,
)
from agentsgym.generation.vllm.weight_files import ServedModel
from vllm_program import alive, assert_gone, pids, write_program

MODEL = ServedModel(folder="/models/m", name="m", dtype="float32", longest=512)

# A process that starts a server that never gets ready, and says so.
PARENT = """
import sys
from pathlib import Path
from agentsgym.generation.vllm.weight_files import ServedModel
from agentsgym.generation.vllm.launcher import VLLMServers
model = ServedModel(folder="m", name="m", dtype="float32")
VLLMServers(model, 1, Path(sys.argv[2]), command=sys.argv[1])
"""


@pytest.mark.parametrize(
    ("learns", "expected"), [(True, [Device("1")]), (False, [Device("0"), Device("1")])]
)
def test_servers_leave_a_gpu_to_a_learner_only_where_one_learns(
    monkeypatch, tmp_path, learns, expected
):
    """An evaluation has no learner: its servers get all GPUs."""
    given = {}
    monkeypatch.setattr(launcher, "_gpus", lambda: ["0", "1"])
    monkeypatch.setattr(
        launcher, "VLLMServers", lambda *_, **more: given.update(more) or Mock(urls=(), key="key")
    )
    settings = EngineSettings(launch=len(expected))
    monkeypatch.setattr(launcher, "served_model", lambda *_: MODEL)
    parts = EngineParts(served=lambda: None, directory=lambda: tmp_path, learns=learns)
    launcher.launched(settings, parts)
    assert sorted(given["devices"], key=str) == expected


@pytest.fixture
def vllm(tmp_path, monkeypatch):
    """The path of a program that behaves as tests/fake_vllm.py says."""
    monkeypatch.setenv("FAKE_VLLM_PIDS", str(tmp_path / "pids"))
    return write_program(tmp_path)


def test_a_server_that_dies_at_the_start_is_one_sentence_with_its_last_words(
    vllm, tmp_path, monkeypatch
):
    monkeypatch.setenv("FAKE_VLLM", "dies")
    with pytest.raises(LaunchFailed) as caught:
        VLLMServers(MODEL, 2, tmp_path / "logs", command=vllm)
    message = str(caught.value)
    assert "ended with status 3 before it was ready" in message
    assert "no room for the KV cache" in message and "\n" not in message
    assert str(tmp_path / "logs" / "server-") in message
    assert_gone(pids(tmp_path))


def test_a_server_that_is_never_ready_is_ended(vllm, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_VLLM", "never")
    monkeypatch.setattr(launcher, "START_SECONDS", 1.0)
    monkeypatch.setattr(launcher, "_NOTE", 0.3)
    notes = []
    with pytest.raises(LaunchFailed, match=r"is not ready after 1 s; .* ends: .*fake vllm starts"):
        VLLMServers(MODEL, 1, tmp_path / "logs", command=vllm, note=notes.append)
    assert notes[0].startswith("starting a server of /models/m, with logs in")
    assert notes[1].startswith("waiting for a server since")
    assert_gone(pids(tmp_path))


def test_nothing_is_left_running_when_the_starting_process_dies(vllm, tmp_path):
    env = os.environ | {"FAKE_VLLM": "never"}
    with subprocess.Popen([sys.executable, "-c", PARENT, vllm, str(tmp_path)], env=env) as parent:
        started = pids(tmp_path)
        assert all(map(alive, started))
        parent.kill()
        parent.wait(30)
    assert parent.returncode != 0
    assert_gone(started)


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(NoCommand, match="no program '/nowhere/vllm'"):
        find_program("/nowhere/vllm")


def test_our_own_engine_is_started_by_its_command():
    program = find_program("serve-model")
    assert program == [sys.executable, "-P", "-m", "agentsgym", "serve-model"]
    words = serve_command(program, MODEL, 80, Device(), ["--threads", "2"])
    assert words[5:] == [
        *("/models/m", "--host", "127.0.0.1", "--port", "80", "--served-model-name", "m"),
        *("--dtype", "float32", "--key-env", "VLLM_API_KEY", "--threads", "2"),
    ]

    assert find_program(sys.executable)[1:] == ["-m", "vllm.entrypoints.openai.api_server"]
    words = serve_command(["python", "-m", "x"], MODEL, 80, Device("0"), [])
    assert words[3:5] == ["--model", "/models/m"]


def test_servers_take_the_gpus_that_no_learner_holds():
    eight = [str(index) for index in range(8)]
    assert devices_for(2, eight, learners=6) == [Device("7"), Device("6")]
    assert devices_for(1, ["GPU-a"], learners=1) == [Device("GPU-a", sharers=2)]
    assert devices_for(3, ["0", "1", "2"], learners=1) == [
        Device("2", sharers=2), Device("1"), Device("2", sharers=2),
    ]  # fmt: skip
    assert devices_for(2, [], learners=1) == [Device(), Device()]


def option(words, name):
    return words[words.index(name) + 1]


def test_the_command_has_what_the_engine_needs():
    model = ServedModel(
        folder="/m", name="base", dtype="bfloat16", context=300, longest=512, lora_rank=12
    )
    words = serve_command(["vllm", "serve"], model, 8001, Device(), ["--seed", "1"])
    assert words[:3] == ["vllm", "serve", "/m"] and words[-2:] == ["--seed", "1"]
    assert option(words, "--port") == "8001" and option(words, "--served-model-name") == "base"
    assert option(words, "--logprobs-mode") == "processed_logprobs"
    assert option(words, "--max-lora-rank") == "16"  # vLLM has no 12
    # On a CPU a prefill must not be cut.
    assert "--no-enable-chunked-prefill" in words
    assert option(words, "--max-model-len") == option(words, "--max-num-batched-tokens") == "300"
    alone = serve_command(["vllm", "serve"], MODEL, 1, Device("0"), [])
    assert "--no-enable-chunked-prefill" not in alone and "--enable-lora" not in alone
    assert "--gpu-memory-utilization" not in alone
    beside = serve_command(["vllm", "serve"], MODEL, 1, Device("0", sharers=2), [])
    assert option(beside, "--gpu-memory-utilization") == "0.45"


def test_the_server_is_no_process_of_the_training_and_keeps_the_users_variables():
    ours = {
        "RANK": "1",
        "TORCHELASTIC_RUN_ID": "x",
        "PYTHONPATH": "p",
        "VLLM_CPU_KVCACHE_SPACE": "9",
    }
    env = serve_environment(ours, Device(), "secret", foreign=True)
    assert not {"RANK", "TORCHELASTIC_RUN_ID", "PYTHONPATH"} & set(env)
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "9" and env["VLLM_API_KEY"] == "secret"
    assert env["VLLM_SERVER_DEV_MODE"] == "1"
    assert serve_environment(ours, Device("3"), "k", foreign=False)["CUDA_VISIBLE_DEVICES"] == "3"
