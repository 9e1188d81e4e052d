"""The preset `one-gpu` with its vLLM server: seconds of a step, memory, and log-probabilities.

    python benchmarks/one_gpu.py [train|logprobs] [--steps N] [--device cuda]

1. `train`: the preset for `--steps` steps, or for four minutes of them, between evaluations of 64
   episodes. `logp_difference` is what the server and the trainer say of the same tokens (mean of
   the absolute differences, in nats); the peak of the trainer's memory on a GPU stands beside the
   one that `--estimate` names.
2. `logprobs`: the same server samples, and every token's log-probability is compared with a plain
   forward pass of transformers, and so are those of the embedded engine.

The preset's model is used if it is in the hub's cache. Otherwise a random model of its architecture
and size plays, with the quickstart's tokenizer (entries without a text make it as large); such a
model says hardly anything legal, so all of its actions are forgiven: only speed, memory and
log-probabilities count. On a CPU model and numbers are tiny. vLLM is that of the Python that
AGENTSGYM_VLLM_PYTHON names, or of `.venv-vllm`, or the environment's own; without one the result
says `not_run`. AGENTSGYM_VLLM_PYTHON=serve-model tries the code with a server of our own.

The last line is one JSON object.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch

from agentsgym.generation.vllm.launcher import NoCommand, find_program
from agentsgym.runs import Progress, load_config, train_run
from agentsgym.runs.builtin import builtin_folder
from agentsgym.runs.weights import in_hub_cache

SECONDS = 240
INSTALL = "python3 -m venv .venv-vllm && .venv-vllm/bin/pip install vllm"
PRESET, MODEL = "one-gpu", "Qwen/Qwen3-1.7B"
SHAPES = {
    "cuda": {
        "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 6144,
        "head_dim": 128, "max_position_embeddings": 40960,
    },
    "cpu": {
        "vocab_size": 4096, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "head_dim": 32,
        "max_position_embeddings": 512,
    },
}  # fmt: skip
"""Of the preset's model, and of one that a CPU can play."""
_OF_A_CPU = {
    "model.dtype": "float32",
    "engine.launch_args": [],
    "env_config.max_steps_per_episode": 3,
    "train.per_device_train_batch_size": 4,
    "train.num_generations": 2,
    "train.max_action_tokens": 8,
    "train.max_rollout_tokens": 512,
    "eval.rollouts": 2,
}
_SHARPER = 4.0  # what the output is multiplied by, so that its distributions are far from flat
_TOLERANCE = {"torch.float32": 1e-3, "torch.bfloat16": 0.2}  # of a mean, in nats


# -- the model ----------------------------------------------------------------------------------


def model_of(device: str) -> str:
    """The preset's model, or the directory of one that stands for it."""
    if device == "cuda" and in_hub_cache(MODEL, None):
        return MODEL
    shape = SHAPES[device]
    folder = common.CACHE / f"qwen3-{shape['num_hidden_layers']}x{shape['hidden_size']}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        _write_random(part, shape, device)
        part.rename(folder)
    return str(folder)


def _write_random(folder: Path, shape: dict[str, int], device: str) -> None:
    from transformers import AutoModelForCausalLM, Qwen3Config

    tokenizer = _widened(shape["vocab_size"])
    config = Qwen3Config(
        **shape,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():
        model.model.norm.weight.mul_(_SHARPER)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _widened(size: int) -> Any:
    """The quickstart's tokenizer with entries that no text has, so that every id is known."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(builtin_folder("quickstart"))
    data = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = data["model"]["vocab"]
    vocabulary |= {f"extra{number}": number for number in range(len(tokenizer), size)}
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(data))
    if len(tokenizer) != size:
        raise RuntimeError(f"the tokenizer has {len(tokenizer)} entries, not {size}")
    return tokenizer


def vllm_python() -> str | None:
    """The program that serves; None: the environment's own vllm. Raises NoCommand."""
    beside = Path(__file__).resolve().parents[1] / ".venv-vllm" / "bin" / "python"
    named = os.environ.get("AGENTSGYM_VLLM_PYTHON", str(beside) if beside.exists() else None)
    find_program(named)
    return named


# -- training -----------------------------------------------------------------------------------


class Watch(Progress):
    """When each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def step(self, report: Any) -> None:
        self.ends.append(time.perf_counter())
        print(f"  step {report.step}: {report.seconds:.1f} s", flush=True)

    def note(self, text: str) -> None:
        print(f"  {text}", flush=True)


def train(model: str, args: argparse.Namespace) -> dict[str, Any]:
    """The preset's run for some steps."""
    from agentsgym.runs.files import RunDirectory, read_metrics
    from agentsgym.runs.rehearsal import estimate_run

    with tempfile.TemporaryDirectory() as folder:
        changes = {
            "output_dir": f"{folder}/run", "train.max_steps": args.steps,
            "engine.command": args.vllm, "model.path": model, "eval.rollouts": 64,
            "max_seconds": SECONDS,
        }  # fmt: skip
        if args.device == "cpu":
            changes |= _OF_A_CPU | {"threads": args.threads}
        if model != MODEL:
            changes |= {
                "model.chat_template": "own", "model.chat_template_kwargs": {},
                "env_config.error_allowance": 100, "signal_check": False,
            }  # fmt: skip
        config = load_config(PRESET, changes)
        watch = Watch()
        common.release()
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        train_run(config, progress=watch)
        lines = list(read_metrics(RunDirectory(config.directory).metrics))
    if not lines:
        raise SystemExit("no figures: no step was made in time")
    if failed := sum(line["failed"] for line in lines):
        raise SystemExit(f"no figures: rollouts failed ({failed:g} as shares of the steps)")
    difference = [line["sampler/logp_difference"] for line in lines]
    rollouts = config.train.given["per_device_train_batch_size"]
    seconds = common.median(np.diff(watch.ends).tolist() or [float("nan")])
    figures = {
        "steps": len(lines),
        "seconds_per_step": round(seconds, 2),
        "seconds_rollouts": round(common.median([line["time/rollouts"] for line in lines]), 2),
        "seconds_update": round(common.median([line["time/update"] for line in lines]), 2),
        "agent_tokens_per_step": round(rollouts * lines[-1]["agent_tokens"]),
        "logp_difference_mean": float(f"{np.mean(difference):.3g}"),
        "logp_difference_worst_step": float(f"{max(difference):.3g}"),
        "reward_first": round(lines[0]["reward"], 3),
        "reward_last": round(lines[-1]["reward"], 3),
    }
    if args.device == "cuda":
        peak = torch.cuda.max_memory_allocated()
        estimate = estimate_run(config).memory["peak"]
        figures |= {
            "peak_gb": round(peak / 1e9, 2),
            "estimate_gb": round(estimate / 1e9, 2),
            "estimate_over_measured": round(estimate / peak, 2),
        }
    return figures


# -- log-probabilities --------------------------------------------------------------------------


def logprobs(model: str, args: argparse.Namespace) -> dict[str, Any]:
    """How far the log-probabilities of vLLM and of the embedded engine are from a plain forward
    pass, for the tokens that each sampled."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from agentsgym.generation import EmbeddedEngine

    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    tokenizer = AutoTokenizer.from_pretrained(model)
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).to(args.device).eval()
    requests = _requests(loaded.config.vocab_size, args)
    by_vllm = _sampled_by_vllm(model, str(dtype), tokenizer, loaded.config, requests, args)
    by_us = _answers(EmbeddedEngine(loaded, tokenizer, capacity=len(requests)), requests)
    figures: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch.")}
    for name, results in (("vllm", by_vllm), ("embedded", by_us)):
        gaps = [_gaps(loaded, request, results[request.session_id]) for request in requests]
        every = torch.cat(gaps)
        figures |= {
            f"{name}_tokens": len(every),
            f"{name}_mean": float(f"{float(every.mean()):.3g}"),
            f"{name}_99_percent": float(f"{float(every.quantile(0.99)):.3g}"),
            f"{name}_worst": float(f"{float(every.max()):.3g}"),
        }
        if not figures[f"{name}_mean"] < _TOLERANCE[str(dtype)]:
            raise SystemExit(f"{name} does not sample from the model: {figures}")
    return figures


def _requests(vocabulary: int, args: argparse.Namespace) -> list[Any]:
    from agentsgym.types import GenerationRequest, SamplingParams

    number, length, tokens = (64, 256, 64) if args.device == "cuda" else (8, 16, 8)
    rng = np.random.default_rng(0)
    drawn = rng.integers(5, min(vocabulary, 4096), (number, length)).tolist()
    return [
        GenerationRequest(f"s{k}", ids, SamplingParams(tokens), seed=k)
        for k, ids in enumerate(drawn)
    ]


def _sampled_by_vllm(
    model: str,
    dtype: str,
    tokenizer: Any,
    shape: Any,
    requests: Sequence[Any],
    args: argparse.Namespace,
) -> dict[str, Any]:
    from agentsgym.generation.vllm import VLLMEngine
    from agentsgym.generation.vllm.launcher import Device, VLLMServers
    from agentsgym.generation.vllm.weight_files import ServedModel

    served = ServedModel(
        folder=model,
        name="model",
        dtype=dtype.removeprefix("torch."),
        context=512,
        longest=shape.max_position_embeddings,
    )
    ours = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    device = Device(ours, sharers=2) if args.device == "cuda" else Device()
    with tempfile.TemporaryDirectory() as logs:
        servers = VLLMServers(
            served, 1, Path(logs), devices=[device], command=args.vllm, note=Watch().note
        )
        with closing(servers):
            engine = VLLMEngine(
                servers.urls, tokenizer, api_key=servers.key, vocab_size=shape.vocab_size
            )
            with closing(engine):
                return _answers(engine, requests)


def _answers(engine: Any, requests: Sequence[Any]) -> dict[str, Any]:
    engine.submit(requests)
    answers: dict[str, Any] = {}
    while len(answers) < len(requests):
        for result in engine.poll():
            if result.error is not None:
                raise SystemExit(f"no figures: {result.error}")
            answers[result.session_id] = result
    return answers


@torch.no_grad()
def _gaps(model: Any, request: Any, result: Any) -> torch.Tensor:
    """Absolute differences from a plain forward pass, one per sampled token."""
    ids = torch.tensor([[*request.token_ids, *result.token_ids]], device=model.device)
    logps = model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
    own = logps.gather(1, ids[0, 1:, None])[len(request.token_ids) - 1 :, 0]
    gaps: torch.Tensor = (own.cpu() - torch.tensor(result.logprobs)).abs()
    return gaps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_common_arguments(parser)
    parser.add_argument("part", nargs="?", choices=("train", "logprobs"))
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    common.set_up(args)
    try:
        args.vllm = vllm_python()
    except NoCommand:
        common.finish({"not_run": f"vLLM is missing: {INSTALL}"})
        return
    model = model_of(args.device)
    shape = SHAPES[args.device]
    stand_in = (
        f"a random Qwen3, {shape['num_hidden_layers']} layers of width {shape['hidden_size']}, "
        "with the quickstart's tokenizer"
    )
    result: dict[str, Any] = {
        "device": common.device_name(args.device),
        "model": MODEL if model == MODEL else stand_in,
    }
    print(f"{result['device']}; {result['model']}; vLLM of {args.vllm or sys.prefix}", flush=True)
    parts = {"train": train, "logprobs": logprobs}
    for name, part in parts.items():
        if args.part in (None, name):
            figures = part(model, args)
            print(f"  {name}: {figures}", flush=True)
            result |= figures if args.part else {name: figures}
    common.finish(result)


if __name__ == "__main__":
    main()
