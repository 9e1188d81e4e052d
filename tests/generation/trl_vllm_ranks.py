"""One rank of two that play through TRL's server mode; prints what it played as JSON.

TRL's own `VLLMGeneration.generate` runs, over gloo; only the client of the CUDA server is a stub.
Rank 1 has more rollouts than rank 0, and longer ones.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from accelerate import Accelerator
from generation_helpers import build_tokenizer
from trl.generation.vllm_generation import VLLMGeneration

from agentsgym import DirectOutputAgent, EnvPool, SamplingParams, register
from agentsgym.generation.vllm.trl import TRLVLLMEngine
from agentsgym.rollout import run
from agentsgym.training.ranks import Ranks
from helpers import CountdownEnv


class StubClient:
    """Answers each prompt with its length in letters, and the end of the turn."""

    def __init__(self):
        self.calls = []

    def generate(self, prompts, n, max_tokens, features=None, images=None, **_):
        assert n == 1 and features is None and images is None
        self.calls.append((len(prompts), max_tokens))
        answers = [[40 + len(ids) % 40, 41, 0, 42] for ids in prompts]
        logprobs = [[[-0.01 * len(ids)]] * 4 for ids in prompts]
        return {"prompt_ids": prompts, "completion_ids": answers, "logprobs": logprobs}


def main():
    accelerator = Accelerator(cpu=True)
    generation = VLLMGeneration.__new__(VLLMGeneration)
    generation.__dict__.update(
        accelerator=accelerator, mode="server", vllm_client=StubClient(), temperature=1.0,
        top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, max_completion_length=16,
        logprobs=0, structured_outputs_regex=None, generation_kwargs={},
    )  # fmt: skip
    rank = accelerator.process_index
    register("Countdown", CountdownEnv)
    tokenizer = build_tokenizer()
    engine = TRLVLLMEngine(generation, tokenizer, Ranks(accelerator).gather)
    steps = (2, 5)[rank]
    rows = [
        {
            "env_class_path": "Countdown",
            "env_config": {"system_prompt": "x" * (rank + k)},
            "task_data": {"rewards": [0.0] * (steps - k % 2)},
        }
        for k in range((2, 3)[rank])
    ]
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=(3, 8)[rank]))
    batch = run(rows, agent, envs=EnvPool(tokenizer))
    engine.finish()
    everyone = Ranks(accelerator).gather([rank])  # the next collective finds its partners
    sys.stdout.write(
        json.dumps(
            {
                "failed": [r.error for r in batch.rollouts],
                "steps": [len(r.episodes[0].steps) for r in batch.rollouts],
                "rows": [
                    [
                        [s.start, list(row.token_ids[s.start : s.stop]), row.logprobs[s.start]]
                        for s in row.spans
                    ]
                    for row in batch.rows
                ],
                "calls": generation.vllm_client.calls,
                "everyone": everyone,
                "rounds": engine.stats.forward_passes,
            }
        )
    )


main()
