"""Axolotl 0.19 trains with our plugin as we do (`make test-doors DOOR=axolotl`)."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("axolotl")

import torch
from safetensors.torch import load_file

from agentsgym.runs.files import read_stored
from helpers import child_environment

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "axolotl"
pytestmark = pytest.mark.timeout(1800)  # three programs that import all of Axolotl
OFFLINE = {"AXOLOTL_DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
os.environ |= OFFLINE  # read when Axolotl is imported


def command(folder, *words):
    """Run a program of this environment in `folder`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        words,
        cwd=folder,
        env=child_environment(ROOT / "src") | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with the model from which the examples start."""
    made = tmp_path_factory.mktemp("axolotl")
    command(made, sys.executable, "-m", "agentsgym", "train", str(EXAMPLES / "bandit_model.yaml"))
    return made


@pytest.fixture(scope="module")
def by_axolotl(folder):
    """The example, as its first lines say."""
    command(folder, "axolotl", "train", str(EXAMPLES / "bandit.yaml"))
    return folder / "runs/axolotl/bandit"


@pytest.fixture(scope="module")
def by_us(folder):
    """The same settings under `agentsgym train`."""
    file = EXAMPLES / "bandit_agentsgym.yaml"
    command(folder, sys.executable, "-m", "agentsgym", "train", str(file))
    return folder / "runs/axolotl/bandit-agentsgym"


@pytest.fixture
def train(folder, monkeypatch):
    """Returns a function that trains in this process; options are keys of the YAML."""
    from axolotl.cli.train import do_cli

    monkeypatch.chdir(folder)

    def run(output, section=None, **options):
        config = yaml.safe_load((EXAMPLES / "bandit.yaml").read_text())
        config["agentsgym"] |= section or {}
        file = folder / f"{output}.yaml"
        config |= {"output_dir": str(folder / output), **options}
        file.write_text(yaml.safe_dump(config))
        do_cli(str(file))
        return folder / output

    return run


def logged(run):
    """The figures of each step that the last checkpoint knows."""
    last = max(run.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return {entry["step"]: entry for entry in history if "loss" in entry}


def test_the_learning_curve_is_that_of_agentsgym_train(by_axolotl, by_us):
    theirs = logged(by_axolotl)
    lines = [json.loads(line) for line in (by_us / "metrics.jsonl").read_text().splitlines()]
    ours = {line["step"]: line for line in lines if "loss" in line}
    assert list(theirs) == list(ours) == list(range(1, 41))
    for step in range(1, 41):
        for name in ("loss", "grad_norm", "reward", "malformed", "entropy", "learning_rate"):
            assert theirs[step][name] == pytest.approx(ours[step][name], abs=1e-4), (step, name)
    assert sum(theirs[step]["reward"] for step in range(33, 41)) > 8 * 0.35
    assert theirs[1]["reward"] < 0.15


def test_the_same_games_rewards_ids_and_masks(by_axolotl, by_us):
    theirs, ours = (list(read_stored(run, "train")) for run in (by_axolotl, by_us))
    assert len(theirs) == len(ours) == 40 * 64
    assert [line.step for line in theirs] == [line.step for line in ours]
    for line, same in zip(theirs, ours, strict=True):
        assert line.rollout.episodes == same.rollout.episodes
        for row, again in zip(line.rollout.rows, same.rollout.rows, strict=True):
            assert row == again
        for advantages, again in zip(line.advantages, same.advantages, strict=True):
            assert advantages == pytest.approx(again)


def test_a_resumed_run_ends_with_the_same_bits(by_axolotl, train):
    checkpoint = by_axolotl / "checkpoint-20"
    resumed = train("resumed", resume_from_checkpoint=str(checkpoint))
    whole, again = (load_file(run / "model.safetensors") for run in (by_axolotl, resumed))
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_lora_evaluation_accumulation_rex_and_resume(train):
    options = {
        "adapter": "lora",
        "lora_r": 8,
        "lora_alpha": 16,
        "lora_target_linear": True,
        "micro_batch_size": 16,
        "gradient_accumulation_steps": 2,
        "max_steps": 4,
        "eval_steps": 2,
        "save_steps": 2,
        "warmup_steps": 0,
        "lr_scheduler": "rex",
    }
    section = {"eval_tasks": 12, "eval_rollouts": 2}
    whole = train("lora", section, **options)
    state = json.loads((whole / "checkpoint-4/trainer_state.json").read_text())["log_history"]
    rates = [entry["learning_rate"] for entry in state if "learning_rate" in entry]
    assert rates[-1] == 0 and all(a > b for a, b in itertools.pairwise(rates))
    evaluations = [entry for entry in state if "eval_reward" in entry]
    assert [entry["step"] for entry in evaluations] == [0, 2, 4]
    assert [len(list(read_stored(whole, phase))) for phase in ("train", "eval")] == [4 * 32, 3 * 24]
    resumed = train(
        "lora-resumed", section, resume_from_checkpoint=str(whole / "checkpoint-2"), **options
    )
    first, second = (load_file(run / "adapter_model.safetensors") for run in (whole, resumed))
    assert first.keys() == second.keys() and len(first) > 10
    assert all(torch.equal(first[name], second[name]) for name in first)
