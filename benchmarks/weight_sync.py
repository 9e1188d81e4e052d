"""What it costs to bring all weights to a vLLM server after each step, and that they arrive.

The server is launched as a run does it (`engine_launch`), and a training of a few steps updates it
as a run does it: all weights go to the disk, and the server reads them from there. Times are wall
seconds, because the server works in a process of its own. Afterwards all weights are changed a lot,
sent once more, and the server's greedy actions are compared with those of the embedded engine.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import torch
from common import NEW_TOKENS
from transformers import TrainerCallback

from agentsgym.types import GenerationRequest, GenerationResult, SamplingParams

CONTEXT = 512
NOISE = 0.1  # of a matrix's own standard deviation
ACTION = 24  # greedy tokens that are compared for each prompt
TOLERANCE = {"float32": 2e-3, "bfloat16": 0.15}  # nats
PROMPTS = (
    "Name a color.",
    "What is the capital of France?",
    "Count from one to ten.",
    "Write a sentence about a small dog.",
)


class StepSeconds(TrainerCallback):
    """Wall seconds of each step: sync, rollouts, update and optimizer."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self._start)


@dataclass(frozen=True)
class Difference:
    """How far two engines' greedy actions are apart.

    `logprob` is the largest difference in nats over tokens after the same context, where engines
    chose different tokens included; `same` the number of tokens before the first different one, of
    `tokens` in all.
    """

    logprob: float
    same: int
    tokens: int


def weight_sync(args: argparse.Namespace) -> dict[str, Any]:
    """The figures in float32 and under bfloat16 autocast, each with a server of its own."""
    if args.vllm_python is None:
        why = "no --vllm-python, the Python of an environment that has vLLM"
        return {"weight_sync": None, "weight_sync_why": why}
    found = {name: _measured(args, bf16) for name, bf16 in (("float32", 0), ("bfloat16", 1))}
    return {"weight_sync": found}


def _measured(args: argparse.Namespace, bf16: int) -> dict[str, Any]:
    from agentsgym.generation.vllm.launcher import LaunchFailed

    try:
        trainer = _trainer(args, bool(bf16))
    except LaunchFailed as error:
        sys.exit(f"no figures of the weight sync: {error}")
    with closing(trainer.collector.engine):
        return _timed(trainer) | _compared(trainer, bool(bf16))


def _trainer(args: argparse.Namespace, bf16: bool) -> Any:
    from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, task_dataset
    from agentsgym.envs import make

    model, tokenizer = common.plain_model(args.model)
    rows = common.rows_of(common.make_games(tokenizer, 1, args.turns))
    env = make("benchmarks/Talk", tokenizer, rows[0]["env_config"])
    options = common.trainer_options() | {
        "output_dir": str(common.CACHE / f"sync-{'bfloat16' if bf16 else 'float32'}"),
        "per_device_train_batch_size": args.rollouts,
        "num_generations": args.rollouts,
        "bf16": bf16,
        "use_cpu": True,
        "max_steps": args.repeats + 1,
        "max_action_tokens": NEW_TOKENS,
        "max_rollout_tokens": CONTEXT,
        "engine_launch": 1,
        "engine_command": args.vllm_python,
    }
    tasks = task_dataset(env, [row["task_data"] for row in rows])
    return GRPOEnvTrainer(model, GRPOEnvConfig(**options), tasks, None, tokenizer, note=_say)


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


def _timed(trainer: Any) -> dict[str, Any]:
    """Seconds and bytes of a sync, and its share of a step; the first step warms up."""
    engine, steps = trainer.collector.engine, StepSeconds()
    syncs, loads = common.time_calls(trainer.sync, "push"), common.time_calls(engine, "load")
    trainer.add_callback(steps)
    trainer.train()
    shares = [a / b for a, b in zip(syncs, steps.seconds, strict=True)]
    found = {
        "seconds": round(common.median(syncs[1:]), 2),
        "seconds_of_the_servers_load": round(common.median(loads[1:]), 2),
        "seconds_of_each": [round(seconds, 2) for seconds in syncs],
        "step_seconds": round(common.median(steps.seconds[1:]), 2),
        "share_of_step": round(common.median(shares[1:]), 3),
        "bytes": _bytes(Path(trainer.args.output_dir) / "sync"),
        "sampled_tokens_per_step": engine.stats.sampled_tokens // len(steps.seconds),
    }
    _say(str(found))
    return found


def _bytes(directory: Path) -> int:
    """The size of the newest version of the weights."""
    newest = max(directory.iterdir(), key=lambda path: path.stat().st_mtime)
    return sum(file.stat().st_size for file in newest.rglob("*"))


# -- that the server has the weights ------------------------------------------------------------


def _compared(trainer: Any, bf16: bool) -> dict[str, Any]:
    """How far the server is from the embedded engine on the same new weights. Exits where it is
    further than the dtype allows, or where the change of the weights is too small to tell."""
    model, tokenizer = trainer.accelerator.unwrap_model(trainer.model), trainer.tokenizer
    dtype = torch.bfloat16 if bf16 else torch.float32
    prompts = [common.opening_ids(tokenizer, text) for text in PROMPTS]
    server = trainer.collector.engine
    before = _greedy(server, prompts)
    change(model)
    trainer.push_weights(trainer.state.global_step + 1)
    after = _greedy(server, prompts)
    here = _embedded(model, tokenizer, dtype, prompts)
    error, moved = difference(after, here), difference(after, before)
    _say(f"greedy actions of the server and ours: {error}; of the old weights: {moved}")
    allowed = TOLERANCE[str(dtype).removeprefix("torch.")]
    if error.logprob > allowed or moved.logprob < 2 * allowed:
        sys.exit(f"the server does not have the new weights: {error}, old weights {moved}")
    return {
        "logprob_error": round(error.logprob, 5),
        "logprob_change": round(moved.logprob, 3),
        "same_greedy_tokens": error.same,
        "greedy_tokens": error.tokens,
    }


@torch.no_grad()
def change(model: Any) -> None:
    """Add noise to every matrix of a model."""
    random = torch.Generator().manual_seed(0)
    for matrix in (p for p in model.parameters() if p.dim() == 2):
        matrix += NOISE * matrix.std() * torch.randn(matrix.shape, generator=random)


def _embedded(
    model: Any, tokenizer: Any, dtype: torch.dtype, prompts: Sequence[list[int]]
) -> list[GenerationResult]:
    from agentsgym.generation import EmbeddedEngine

    with closing(EmbeddedEngine(model, tokenizer, dtype=dtype)) as engine:
        return _greedy(engine, prompts)


def _greedy(engine: Any, prompts: Sequence[list[int]]) -> list[GenerationResult]:
    """The most likely actions after each prompt."""
    names = [f"greedy-{index}" for index in range(len(prompts))]
    wanted = SamplingParams(ACTION, 0.0)
    engine.submit(
        [GenerationRequest(n, ids, wanted, seed=0) for n, ids in zip(names, prompts, strict=True)]
    )
    found: dict[str, GenerationResult] = {}
    while results := engine.poll():
        found |= {result.session_id: result for result in results}
    engine.release(names)
    if errors := [result.error for result in found.values() if result.error]:
        sys.exit(f"a greedy action failed: {errors[0]}")
    return [found[name] for name in names]


def difference(one: Sequence[GenerationResult], two: Sequence[GenerationResult]) -> Difference:
    """Compare actions up to and including their first different token, which may be a near tie of
    two most likely ones: after it the contexts differ."""
    worst, same, tokens = 0.0, 0, 0
    for a, b in zip(one, two, strict=True):
        equal = [x == y for x, y in zip(a.token_ids, b.token_ids, strict=False)]
        alike = equal.index(False) if False in equal else len(equal)
        pairs = zip(a.logprobs[: alike + 1], b.logprobs[: alike + 1], strict=False)
        worst = max([worst, *(abs(x - y) for x, y in pairs)])
        same, tokens = same + alike, tokens + max(len(a.token_ids), len(b.token_ids))
    return Difference(worst, same, tokens)
