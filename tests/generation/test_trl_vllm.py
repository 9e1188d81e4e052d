"""The engine over TRL's vLLM modes. vLLM itself needs CUDA there; what surrounds it runs here."""

import inspect
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentsgym.generation.vllm.trl import TRLVLLMEngine
from agentsgym.types import GenerationRequest, SamplingParams, WeightUpdate
from helpers import child_environment


class Stub:
    """TRL's VLLMGeneration as we use it: answers 40, 41, end, 42 to everything."""

    def __init__(self) -> None:
        self.temperature = 1.0
        self.max_completion_length = 16
        self.synced = 0

    def sync_weights(self) -> None:
        self.synced += 1

    def generate(self, prompts: Any, images: Any, num_generations: int) -> Any:
        answers = [[40, 41, 0, 42][: self.max_completion_length] for _ in prompts]
        return prompts, answers, [[[-0.5], [-0.7], [-1.0], [None]]] * len(prompts), None


def test_trls_signatures_are_as_we_call_them() -> None:
    """Fails loudly when TRL moves what the engine relies on."""
    from trl import GRPOTrainer
    from trl.generation.vllm_generation import VLLMGeneration

    generate = inspect.signature(VLLMGeneration.generate)
    assert list(generate.parameters) == [
        "self", "prompts", "images", "num_generations", "profiler",
    ]  # fmt: skip
    assert generate.parameters["profiler"].default is None
    assert list(inspect.signature(VLLMGeneration.sync_weights).parameters) == ["self"]
    made = inspect.signature(VLLMGeneration.__init__).parameters
    assert {"temperature", "max_completion_length", "logprobs", "mode"} <= set(made)
    assert made["logprobs"].default == 0
    source = inspect.getsource(VLLMGeneration.generate)
    # Read at each call, so that setting them before it is enough.
    assert "temperature = self.temperature" in source
    assert "max_completion_length = self.max_completion_length" in source
    # Equal slices: why all ranks must bring equally many prompts.
    assert "accelerator.process_index * len(prompts)" in source
    assert "gather_object(prompts)" in source
    assert 'logprobs_mode="processed_logprobs"' in inspect.getsource(VLLMGeneration._init_vllm)
    assert "self.vllm_generation = VLLMGeneration(" in inspect.getsource(GRPOTrainer.__init__)


def test_actions_end_at_their_own_cap_and_stops(tokenizer: Any) -> None:
    engine = TRLVLLMEngine(Stub(), tokenizer)
    letters = tokenizer.decode([41])
    engine.submit(
        [
            GenerationRequest("whole", [5, 6], SamplingParams(9)),
            GenerationRequest("short", [5], SamplingParams(1)),
            GenerationRequest("stopped", [5], SamplingParams(4, stop=(letters,))),
            GenerationRequest("cut", [5], SamplingParams(4, top_p=0.5)),
            GenerationRequest("empty", [], SamplingParams(4)),
        ]
    )
    found = {result.session_id: result for result in engine.poll()}
    assert found["whole"].token_ids == (40, 41, 0) and found["whole"].finish_reason == "stop"
    assert found["whole"].logprobs == (-0.5, -0.7, -1.0)
    assert found["short"].token_ids == (40,) and found["short"].finish_reason == "length"
    assert found["stopped"].token_ids == (40, 41) and found["stopped"].finish_reason == "stop"
    assert "top_p" in found["cut"].error
    assert "empty" in found["empty"].error
    assert engine.poll() == []


def test_a_logprob_that_is_no_number_ends_its_session(tokenizer: Any) -> None:
    stub = Stub()
    stub.generate = lambda prompts, **_: (prompts, [[40, 41]], [[[-0.5], [None]]], None)
    engine = TRLVLLMEngine(stub, tokenizer)
    engine.submit([GenerationRequest("a", [5], SamplingParams(4))])
    assert "not a number" in engine.poll()[0].error


def test_requests_that_differ_in_their_sampling_are_refused(tokenizer: Any) -> None:
    engine = TRLVLLMEngine(Stub(), tokenizer)
    engine.submit([GenerationRequest(str(t), [5], SamplingParams(4, t)) for t in (0.5, 1.0)])
    with pytest.raises(ValueError, match="alike"):
        engine.poll()


def test_cancel_release_update_finish(tokenizer: Any) -> None:
    stub = Stub()
    engine = TRLVLLMEngine(stub, tokenizer)
    engine.submit([GenerationRequest(name, [5], SamplingParams(4)) for name in "abc"])
    with pytest.raises(ValueError, match="already"):
        engine.submit([GenerationRequest("a", [5], SamplingParams(4))])
    with pytest.raises(RuntimeError, match="3 requests"):
        engine.finish()
    engine.cancel(["a"])
    engine.release(["b"])
    found = {result.session_id: result.finish_reason for result in engine.poll()}
    assert found == {"a": "cancelled", "c": "stop"}
    engine.update_weights(WeightUpdate(None, 7, Path()))
    engine.finish()
    assert stub.synced == 1 and engine.policy_version == 7 and engine.stats.forward_passes == 1


def test_two_ranks_with_unequal_turns_do_not_deadlock(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("trl_vllm_ranks.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=child_environment(script.parent)
            | {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "ACCELERATE_USE_CPU": "true",
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [json.loads(rank.communicate(timeout=200)[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [each["steps"] for each in said] == [[2, 1], [5, 4, 5]]
    assert all(each["everyone"] == [0, 1] for each in said)
    assert [each["rounds"] for each in said] == [5, 5]
    # Fillers make the shares equal: 3 prompts of each rank while rank 1 plays three rollouts.
    assert said[0]["calls"] == [[6, 8]] * 4 + [[4, 8]]
    for each in said:
        assert each["failed"] == [None] * len(each["steps"])
        for row in each["rows"]:
            for context, ids, logprob in row:
                # An answer says how long its prompt was, so it went to the one who asked.
                assert ids == [40 + context % 40, 41, 0]
                assert logprob == pytest.approx(-0.01 * context)
