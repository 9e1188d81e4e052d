"""Measured peaks of memory against `agentsgym train … --estimate`, a line of JSON each.

    python benchmarks/memory.py [--case NAME ...] [--device cuda]

Each case is a process of its own that trains a randomly initialized model for two optimizer steps;
its peak of resident memory (on a GPU of allocated memory), less what the process held after a step
of a very small model, is compared with the estimate. `estimate_over_measured` should lie between
0.8 and 1.2.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from typing import Any

TURNS, ACTION = 8, 8
SMALL, SMOLLM2 = (8, 512, 8, 4, 2048, 8192), (30, 576, 9, 3, 1536, 49152)
CASES: dict[str, dict[str, Any]] = {
    "width-256": {"shape": (8, 256, 4, 4, 1024, 8192)},
    "width-512": {"shape": SMALL},
    "width-768": {"shape": (6, 768, 12, 4, 2048, 32000)},
    "width-512-checkpointing": {"shape": SMALL, "checkpointing": True},
    "width-512-bfloat16": {"shape": SMALL, "half": True},
    "width-512-bfloat16-checkpointing": {"shape": SMALL, "half": True, "checkpointing": True},
    "width-512-lora": {"shape": SMALL, "lora": True},
    "width-512-bfloat16-lora": {"shape": SMALL, "half": True, "lora": True},
    "width-512-bfloat16-lora-checkpointing": {
        "shape": SMALL,
        "half": True,
        "lora": True,
        "checkpointing": True,
    },
    "width-512-long-chunks": {"shape": SMALL, "forward": 4096},
    "width-512-one-chunk": {"shape": SMALL, "forward": 16384, "rollouts": 8},
    "width-256-many-rows": {"shape": (8, 256, 4, 4, 1024, 32000), "rollouts": 128},
    "smollm2": {"shape": SMOLLM2, "rollouts": 8},
    "smollm2-bfloat16": {"shape": SMOLLM2, "rollouts": 8, "half": True},
    "smollm2-lora": {"shape": SMOLLM2, "rollouts": 8, "lora": True},
    "smollm2-bfloat16-lora": {"shape": SMOLLM2, "rollouts": 8, "half": True, "lora": True},
}
TRIAL = {"trial": {"shape": (2, 64, 4, 2, 128, 1024), "rollouts": 8}}
"""To try on a CPU what is meant for a GPU."""
_ON_A_GPU: dict[str, Any] = {"rollouts": 64, "forward": 8192, "half": True}
CASES_OF_A_GPU: dict[str, dict[str, Any]] = {
    f"llama-{size}-bfloat16{name}": {"shape": shape, **_ON_A_GPU, **options}
    for size, shape in {
        "0.5": (24, 1024, 16, 4, 4096, 32000),
        "1.5": (24, 2048, 16, 4, 8192, 32000),
    }.items()
    for name, options in {
        "": {},
        "-checkpointing": {"checkpointing": True},
        "-lora-checkpointing": {"lora": True, "checkpointing": True},
    }.items()
}


def main() -> None:
    parser = argparse.ArgumentParser()
    cases = CASES | CASES_OF_A_GPU | TRIAL
    parser.add_argument("--case", nargs="*", choices=list(cases))
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--inside", action="store_true", help="run the case in this process")
    args = parser.parse_args()
    on_gpu = args.device.startswith("cuda")
    for name in args.case or list(CASES_OF_A_GPU if on_gpu else CASES):
        if args.inside:
            print(json.dumps({"case": name, **measure(args.device, **cases[name])}))
        else:
            command = [sys.executable, __file__, "--inside", "--device", args.device]
            subprocess.run([*command, "--case", name], check=True, env=_memory_env())


def _memory_env() -> dict[str, str]:
    """Freed memory goes back at once, so that resident memory is what is held."""
    allocator = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    return {**os.environ, **allocator, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}


def measure(
    device: str,
    shape: tuple[int, ...],
    *,
    rollouts: int = 16,
    forward: int = 1024,
    checkpointing: bool = False,
    half: bool = False,
    lora: bool = False,
) -> dict[str, Any]:
    """Peak and estimate of one case, in MB."""
    import common

    from agentsgym.runs import parse_config
    from agentsgym.runs.rehearsal import estimate_run

    options: dict[str, Any] = {
        "device": device, "forward": forward, "checkpointing": checkpointing, "half": half,
        "lora": lora,
    }  # fmt: skip
    _, tokenizer = common.tiny()
    _train((2, 64, 2, 2, 128, 1024), tokenizer, rollouts=8, **options)
    before = _held(device)
    length = _train(shape, tokenizer, rollouts=rollouts, **options)
    peak = _peak(device) - before
    with tempfile.TemporaryDirectory() as folder:
        _config(shape, tokenizer).save_pretrained(folder)
        model = {"path": folder, "dtype": "bfloat16" if half else "float32"}
        train = {
            "max_steps": 2,
            "per_device_train_batch_size": rollouts,
            "num_generations": 4,
            "max_action_tokens": ACTION,
            "max_rollout_tokens": length,
            "max_tokens_per_forward": forward,
            "gradient_checkpointing": checkpointing,
            "use_cpu": device == "cpu",
        }
        section = {**model, "lora": {"r": 16}} if lora else model
        run = parse_config({"env": "Bandit", "model": section, "train": train})
        memory = estimate_run(run).memory
    return {
        "device": common.device_name(device),
        "measured_mb": round(peak / 1e6),
        "estimate_over_measured": round(memory["peak"] / peak, 2),
        "rollout_tokens": length,
        **{f"{name}_mb": round(value / 1e6) for name, value in memory.items()},
    }


def _held(device: str) -> int:
    """Bytes that the process holds; its peak begins anew on a GPU, and was not much higher on a
    CPU."""
    import common
    import psutil
    import torch

    if device.startswith("cuda"):
        common.release()
        torch.cuda.reset_peak_memory_stats()
        return int(torch.cuda.memory_allocated())
    held = int(psutil.Process().memory_info().rss)
    if _peak(device) > held * 1.5:
        raise RuntimeError("the peak of the small model is not small")
    return held


def _peak(device: str) -> int:
    import torch

    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _config(shape: tuple[int, ...], tokenizer: Any) -> Any:
    import transformers

    layers, width, heads, kv_heads, mlp, vocabulary = shape
    return transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )


def _train(
    shape: tuple[int, ...],
    tokenizer: Any,
    *,
    device: str,
    rollouts: int,
    forward: int,
    checkpointing: bool,
    half: bool,
    lora: bool,
) -> int:
    """Train for two optimizer steps; returns the length of the longest row."""
    import common
    import datasets
    import torch
    import transformers

    from agentsgym import GRPOEnvConfig, GRPOEnvTrainer

    torch.manual_seed(0)
    config = _config(shape, tokenizer)
    # As in a run, which loads the frozen base of an adapter in the dtype of the passes.
    dtype = torch.bfloat16 if half and lora else torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    forbidden = range(len(tokenizer), shape[-1])
    model = common.without_special_tokens(model, tokenizer, forbidden)
    rows = common.rows_of(common.make_games(tokenizer, rollouts // 4, TURNS))
    lengths: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOEnvTrainer(
            model,
            GRPOEnvConfig(
                output_dir=folder,
                max_steps=2,
                per_device_train_batch_size=rollouts,
                num_generations=4,
                max_action_tokens=ACTION,
                max_tokens_per_forward=forward,
                gradient_checkpointing=checkpointing,
                bf16=half,
                report_to="none",
                use_cpu=device == "cpu",
                save_strategy="no",
                disable_tqdm=True,
            ),
            datasets.Dataset.from_list(rows),
            processing_class=tokenizer,
            peft_config=_adapter() if lora else None,
            rollout_sink=lambda played, info: lengths.extend(
                len(row.token_ids) for rollout in played for row in rollout.rows
            ),
        )
        trainer.train()
    return max(lengths)


def _adapter() -> Any:
    from peft import LoraConfig

    return LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")


if __name__ == "__main__":
    main()
