"""Trainings that want the same server: three fight for FUZZ_CASES fifths of a second.

They load weights, are taken over, end, and are killed at any time. Each answer that one of them
gets must have the log-probabilities of the weights that it names, of that training.
"""

import copy
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import helpers
from agentsgym.child_process import free_ports
from agentsgym.generation import EngineUnavailable
from agentsgym.generation.http import Retries
from agentsgym.generation.vllm import VLLMEngine, holding
from agentsgym.generation.vllm.holding import ServerHeld
from agentsgym.runs.files import RunDirectory, read_metrics, read_summary
from agentsgym.types import GenerationRequest, SamplingParams, WeightUpdate
from serve_process import Served, ServeProcess

SECONDS = int(os.environ.get("FUZZ_CASES", "100")) / 5
PATIENT = Retries(attempts=30, first_delay=0.02, longest_delay=0.2)
FLOAT32 = ("--dtype", "float32")
RUN = """\
env: digit.DigitEnv
model: {path: model, dtype: float32}
threads: 1
train:
  max_steps: 3
  per_device_train_batch_size: 16
  num_generations: 8
  max_action_tokens: 6
  learning_rate: 1e-2
  min_signal_share: 0
eval: {rollouts: 8}
"""


def moved(model, seed, size=0.1):
    other = copy.deepcopy(model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return other.eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("place") / "model"
    tokenizer = helpers.build_tokenizer(helpers.CHATML)
    moved(helpers.random_llama(tokenizer), 0).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


class Training:
    """One that starts anew whenever it has ended."""

    def __init__(self, name, url, folder, out):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.rng = random.Random(f"{os.environ.get('FUZZ_SEED', '0')} {name}")
        self.url, self.out = url, out / name
        self.models, self.wrong = {}, []
        self.answers = self.refused = 0

    def act(self, until):
        number = 0
        while time.monotonic() < until:
            number += 1
            engine = None
            try:
                take_over = self.rng.random() < 0.3
                engine = VLLMEngine(self.url, self.tokenizer, retries=PATIENT, take_over=take_over)
                for _ in range(self.rng.randint(1, 6)):
                    self._step(engine, number)
            except EngineUnavailable as error:  # or it was taken and let go within its reload
                self.refused += 1
                if not isinstance(error, ServerHeld) and "taken meanwhile" not in str(error):
                    self.wrong.append(str(error))
            if engine is not None:
                if self.rng.random() < 0.3:  # it is killed, and takes no mark away
                    engine._loop._clean_ups.clear()
                engine.close()

    def _step(self, engine, number):
        version = len(self.models)
        self.models[version] = moved(self.model, hash((str(self.out), version)) % 2**31)
        sync = self.out / str(number) / "sync"
        engine.update_weights(WeightUpdate(self.models[version], version, sync))
        for k in range(self.rng.randint(1, 5)):
            sampling = SamplingParams(6)
            asked = [GenerationRequest(f"{k} {i}", [5 + i, 20, 30], sampling, i) for i in range(4)]
            engine.submit(asked)
            results = {}
            while len(results) < len(asked):
                results |= {result.session_id: result for result in engine.poll()}
            for request in asked:
                self._check(request, results[request.session_id])

    @torch.no_grad()
    def _check(self, request, result):
        if result.error is not None:
            self.wrong.append(result.error)
            return
        self.answers += 1
        ids = torch.tensor([[*request.token_ids, *result.token_ids]])
        logps = self.models[result.policy_version](ids).logits[0, :-1].log_softmax(-1)
        own = logps.gather(1, ids[0, 1:, None])[len(request.token_ids) - 1 :, 0]
        if not torch.allclose(own, torch.tensor(result.logprobs), atol=1e-3):
            self.wrong.append(f"version {result.policy_version} of {self.out} did not sample this")


@pytest.mark.slow
def test_no_training_gets_an_answer_of_anothers_weights(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(holding, "BEAT_SECONDS", 0.1)
    served = Served(folder)
    trainings = [Training(name, served.url, folder, tmp_path) for name in ("a", "b", "c")]
    threads = [
        threading.Thread(target=training.act, args=[time.monotonic() + SECONDS])
        for training in trainings
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served.close()
    assert [training.wrong for training in trainings] == [[], [], []]
    assert sum(training.answers for training in trainings) > SECONDS
    assert sum(training.refused for training in trainings) > SECONDS / 10


class Run:
    """`agentsgym train` in a process."""

    def __init__(self, place, name, *settings):
        command = ["-P", "-m", "agentsgym", "train", "run.yaml", f"output_dir=runs/{name}"]
        self.directory = RunDirectory(place / "runs" / name)
        self.log = place / f"{name}.log"
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command, *settings],
                cwd=place,
                env=os.environ | {"PYTHONPATH": f"{place}:{os.environ.get('PYTHONPATH', '')}"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def ends(self):
        return self.process.wait(240), " ".join(self.log.read_text().split())

    def has_steps(self, count):
        end = time.monotonic() + 240
        while len(self.steps()) < count:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end
            time.sleep(0.1)

    def steps(self):
        path = self.directory.metrics
        return list(read_metrics(path)) if path.exists() else []

    def sampled_from_itself(self):
        return all(line["sampler/logp_difference"] < 1e-3 for line in self.steps())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_runs_that_name_one_server(folder):
    place = folder.parent
    (place / "digit.py").write_text(Path(helpers.__file__).read_text())
    (place / "run.yaml").write_text(RUN)
    [port] = free_ports(1)
    server = ServeProcess(folder, port, "--served-model-name", "model", *FLOAT32).ready()
    url, long = f"engine.urls={server.url}", "train.max_steps=100000"
    try:
        walnut = Run(place, "walnut", url, long)
        walnut.has_steps(3)
        status, said = Run(place, "hazel", url).ends()
        assert status and "runs/walnut/checkpoints" in said and "engine.take_over" in said
        beech = Run(place, "beech", url, "engine.take_over=true")
        assert beech.ends()[0] == 0, beech.log.read_text()
        status, said = walnut.ends()
        assert status and "runs/beech/checkpoints" in said
        assert read_summary(walnut.directory.summary).status == "failed"
        assert walnut.sampled_from_itself() and beech.sampled_from_itself()
        killed = Run(place, "killed", url, long)
        killed.has_steps(1)
        killed.process.send_signal(signal.SIGKILL)
        last = Run(place, "last", url)  # waits a minute
        assert last.ends()[0] == 0, last.log.read_text()
        assert len(last.steps()) == 3 and last.sampled_from_itself()
    finally:
        server.end()
