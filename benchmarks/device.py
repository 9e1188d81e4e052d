"""The embedded engine on a GPU beside the CPU, and what a CUDA graph of the plain model takes.

    python benchmarks/device.py equality [--families llama …] [--device cuda]
    python benchmarks/device.py graph [--model 0.5] [--device cuda]

`equality`: every family of tests/family_models.py samples the same games on both: equal ids, the
largest difference of their log-probabilities (nats), synchronizations a pass. One that differs ends
the run. `graph`: milliseconds of a decode pass of a random Llama with transformers' static cache,
eager and replayed. A line of JSON each.
"""

import argparse
import copy
import random
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch

from agentsgym.generation import EmbeddedEngine
from agentsgym.types import GenerationRequest, SamplingParams

Sampled = list[tuple[tuple[int, ...], tuple[float, ...]]]
SESSIONS, TURNS, SHARED = 6, 3, 70


def play(engine: EmbeddedEngine) -> Sampled:
    """Ids and log-probabilities of games whose prompts begin alike."""
    rng = random.Random(0)
    shared = [rng.randrange(2, 96) for _ in range(SHARED)]
    dice = [random.Random(i) for i in range(SESSIONS)]
    histories = [shared + [d.randrange(2, 96) for _ in range(d.randint(1, 20))] for d in dice]
    before, sampled = [0] * SESSIONS, Sampled()
    for _ in range(TURNS):
        requests = []
        for i, history in enumerate(histories):
            params = SamplingParams(max_tokens=4 + i)
            requests.append(GenerationRequest(f"s{i}", history, params, i, before[i]))
        engine.submit(requests)
        results: dict[str, Any] = {}
        while ready := engine.poll():
            results |= {result.session_id: result for result in ready}
        for i in range(SESSIONS):
            result = results[f"s{i}"]
            if result.error is not None:
                raise RuntimeError(result.error)
            sampled.append((result.token_ids, result.logprobs))
            before[i] += len(result.token_ids)
            histories[i] = [*histories[i], *result.token_ids, dice[i].randrange(2, 96)]
    return sampled


def compare(model: Any, tokenizer: Any, device: str) -> dict[str, Any]:
    """A model's figures on the device beside the CPU."""
    here = play(EmbeddedEngine(model, tokenizer, capacity=8))
    there = copy.deepcopy(model).to(device)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        engine = EmbeddedEngine(there, tokenizer, capacity=8)
        if device.startswith("cuda"):
            torch.cuda.set_sync_debug_mode("warn")
        ours = play(engine)
        if device.startswith("cuda"):
            torch.cuda.set_sync_debug_mode("default")
    waits = sum("synchroniz" in str(warning.message) for warning in seen)
    common.demand_equal(tuple(ids for ids, _ in ours), tuple(ids for ids, _ in here), "sampled ids")
    pairs = [zip(a, b, strict=True) for (_, a), (_, b) in zip(ours, here, strict=True)]
    gap = max(abs(x - y) for pair in pairs for x, y in pair)
    passes = engine.stats.forward_passes
    return {"logp_difference": float(f"{gap:.2g}"), "syncs_per_pass": round(waits / passes, 1)}


def equality(args: argparse.Namespace) -> None:
    """A line for each family that the embedded engine reads."""
    tests = Path(__file__).resolve().parents[1] / "tests"
    sys.path[:0] = [str(tests), str(tests / "generation")]
    from generation_helpers import build_tokenizer

    from agentsgym.generation.models import UnsupportedModelError
    from family_models import CHANGES, family_model

    torch.backends.cuda.matmul.allow_tf32 = False
    number, tokenizer = 0, build_tokenizer()
    for name in args.families or CHANGES:
        try:
            figures = compare(family_model(name), tokenizer, args.device)
        except UnsupportedModelError:
            continue  # on the CPU, too
        number += 1
        common.finish({"case": name, **figures})
    common.finish({"device": common.device_name(args.device), "equal_families": number})


def graph(args: argparse.Namespace) -> None:
    """A decode pass of 64 rows, eager and as a graph."""
    from transformers import StaticCache

    on_gpu = args.device.startswith("cuda")
    dtype = torch.bfloat16 if on_gpu else torch.float32
    model, _ = common.random_llama(args.model, args.device, dtype)
    cache = StaticCache(config=model.config, max_cache_len=512 if on_gpu else 64)
    ids = torch.full((args.rows, 1), 5, device=args.device)
    position = torch.zeros(1, 1, dtype=torch.long, device=args.device)

    def step() -> None:
        output = model(
            input_ids=ids, past_key_values=cache, use_cache=True,
            position_ids=position.expand(args.rows, 1),
        )  # fmt: skip
        ids.copy_(output.logits[:, -1:].float().argmax(-1))
        position.add_(1)

    result: dict[str, Any] = {"device": common.device_name(args.device)}
    with torch.inference_mode():
        step()
        result["eager_ms"] = _ms(step, args.device, 10)
        if on_gpu:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                step()
            result["graph_ms"] = _ms(captured.replay, args.device, 100)
    common.finish(result)


def _ms(act: Callable[[], None], device: str, times: int) -> float:
    common.synchronise(device)
    started = time.perf_counter()
    for _ in range(times):
        act()
    common.synchronise(device)
    return round((time.perf_counter() - started) / times * 1000, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_common_arguments(parser)
    parser.add_argument("what", choices=("equality", "graph"))
    parser.add_argument("--families", nargs="*", help="only these; None: all")
    parser.add_argument("--model", type=float, default=0.5, choices=common.LLAMAS)
    parser.add_argument("--rows", type=int, default=64)
    args = parser.parse_args()
    common.set_up(args)
    (equality if args.what == "equality" else graph)(args)


if __name__ == "__main__":
    main()
