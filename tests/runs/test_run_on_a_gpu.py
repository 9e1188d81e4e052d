"""`agentsgym train` on a simulated GPU plays and learns what it does on the CPU."""

import json
from pathlib import Path

import pytest

from agentsgym.runs.files import read_metrics, read_rollouts
from simgpu import SimGPU

SMALL = [
    "train.max_steps=2", "train.per_device_train_batch_size=8", "train.num_generations=4",
    "train.max_action_tokens=3", "eval.rollouts=4", "model.dtype=float32",
]  # fmt: skip


def trained(invoke, name, *settings):
    """What a run played in training, and its losses."""
    result = invoke("train", "toy.yaml", *SMALL, f"output_dir={name}", *settings)
    assert result.exit_code == 0, result.output
    assert json.loads(Path(name, "summary.json").read_text())["status"] == "finished"
    played = [row.token_ids.tolist() for r in read_rollouts(Path(name), "train") for row in r.rows]
    return played, [line["loss"] for line in read_metrics(Path(name) / "metrics.jsonl")]


def test_a_run_is_that_of_the_cpu(invoke, workplace):
    played, losses = trained(invoke, "here")
    with SimGPU() as gpu:
        there, other = trained(invoke, "there", "train.use_cpu=false")
        assert gpu.launches.total() > 1000 and not gpu.faults
    assert there == played
    assert other == pytest.approx(losses, abs=1e-5)
