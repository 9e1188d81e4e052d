"""Real vLLM servers on loopback, over a tiny random Llama. Run with `make test-doors DOOR=vllm`."""

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentsgym.child_process import free_ports
from agentsgym.generation.http import Retries
from agentsgym.generation.vllm import VLLMEngine
from helpers import random_llama

_ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("AGENTSGYM_VLLM_PYTHON", _ROOT / ".venv-vllm" / "bin" / "python"))
START_SECONDS = 600
_ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
# `vllm serve` itself does not start from the rebuild for CPUs (it looks for the metadata of a
# package called vllm); this module is what it runs.
_COMMAND = [
    *("-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"),
    *("--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "512", "--max-num-seqs", "64"),
    # Small, so that prefills would be cut, of which a seeded request's server dies on a CPU.
    *("--max-num-batched-tokens", "512", "--no-enable-chunked-prefill"),
    *("--logprobs-mode", "processed_logprobs"),
]
_ADAPTERS = ["--enable-lora", "--max-loras", "2", "--max-cpu-loras", "4", "--max-lora-rank", "16"]


@dataclass
class VLLMServer:
    """A server process; `log` is where its output goes."""

    url: str
    process: subprocess.Popen
    log: Path

    def wait_until_up(self) -> None:
        """Raises AssertionError, with the end of the log, where it does not start."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        raise AssertionError(f"no server after {START_SECONDS} s: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """As a crash would: no good-bye."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="session")
def model_dir(chat_tokenizer, tmp_path_factory):
    """A random Llama with wide weights, so that its distributions are far from flat. Its output
    layer is tied, which servers on a CPU load in a way of their own."""
    model = random_llama(
        chat_tokenizer,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    path = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(path)
    chat_tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def servers(model_dir, tmp_path_factory):
    """Two servers of the same model, for all tests: none may end them."""
    yield from started(model_dir, tmp_path_factory.mktemp("logs"), 2)


@pytest.fixture
def engine(servers, chat_tokenizer):
    made = VLLMEngine([s.url for s in servers], chat_tokenizer, retries=Retries(8, 0.2, 2.0))
    yield made
    made.close()


@pytest.fixture
def mortal(model_dir, tmp_path_factory):
    """A server for one test, which may kill it."""
    for servers in started(model_dir, tmp_path_factory.mktemp("mortal"), 1):
        yield servers[0]


@pytest.fixture
def teacher(model_dir, chat_tokenizer, tmp_path_factory):
    """An engine on a server without adapters: with them, one on a CPU dies of scoring a text."""
    for (server,) in started(model_dir, tmp_path_factory.mktemp("teacher"), 1, adapters=False):
        made = VLLMEngine(server.url, chat_tokenizer)
        yield made
        made.close()


def started(model_dir, logs, count, adapters=True):
    """Servers that are ended after use."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing; run `make test-doors DOOR=vllm`")
    servers = [_start(model_dir, logs / f"server{i}.log", adapters) for i in range(count)]
    try:
        for server in servers:
            server.wait_until_up()
        yield servers
    finally:
        for server in servers:
            server.kill()


def _start(model_dir: Path, log: Path, adapters: bool) -> VLLMServer:
    [port] = free_ports(1)
    command = [str(PYTHON), *_COMMAND, "--model", str(model_dir), "--port", str(port)]
    command += _ADAPTERS if adapters else []
    with log.open("w") as output:
        process = subprocess.Popen(
            ["nice", "-n", "19", *command],
            env=os.environ | _ENVIRONMENT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return VLLMServer(f"http://127.0.0.1:{port}", process, log)
