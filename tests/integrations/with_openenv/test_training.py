"""Training on a served Bandit is training on the Bandit, step by step."""

import json
import math

import pytest

pytest.importorskip("openenv")

import yaml
from typer.testing import CliRunner

from agentsgym import make
from agentsgym.cli.app import app
from agentsgym.integrations.openenv import Limits
from integrations.with_openenv.served_env import served

pytestmark = pytest.mark.doors
BANDIT = {"arms": 2, "max_steps_per_episode": 4, "prior_alpha": 0.2, "prior_beta": 0.2}
STEPS = 6
WARM = {
    "name": "bandit-model",
    "env": "Bandit",
    "env_config": BANDIT,
    "model": "tiny",
    "warm_start": {
        "steps": 120,
        "batch_size": 64,
        "games_per_round": 640,
        "tokenizer_games": 300,
        "learning_rate": 3e-3,
        "model": {"hidden_size": 48, "intermediate_size": 96},
    },
    "train": {
        "max_steps": 1,
        "learning_rate": 0.0,
        "per_device_train_batch_size": 8,
        "max_action_tokens": 6,
        "use_cpu": True,
    },
    "signal_check": False,
    "eval": {"episodes": 16},
}
# What depends on the clock, and what the messages of OpenEnv do not carry: metrics of `info` and
# the environment's own best play.
NOT_CARRIED = ("seconds", "time", "per_second", "runtime", "regret", "best_arm", "reference")


def train(folder, written):
    (folder.parent / f"{folder.name}.yaml").write_text(yaml.safe_dump(written))
    done = CliRunner().invoke(
        app, ["train", str(folder.parent / f"{folder.name}.yaml"), f"output_dir={folder}"]
    )
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def of_both(native, door):
    """The values under the keys that both have."""
    return {
        key: (native[key], door[key])
        for key in native.keys() & door.keys()
        if not any(part in key for part in NOT_CARRIED)
    }


@pytest.mark.timeout(900)
def test_training_on_a_served_bandit_equals_native_training(tmp_path):
    train(tmp_path / "model", WARM)
    learn = {
        "model": str(tmp_path / "model/model"),
        "train": {
            "max_steps": STEPS,
            "per_device_train_batch_size": 64,
            "num_generations": 8,
            "learning_rate": 1e-3,
            "max_action_tokens": 6,
            "logging_steps": 1,
            "use_cpu": True,
        },
        "signal_check": False,
        "eval": {"episodes": 16},
    }
    native = train(tmp_path / "native", {**learn, "env": "Bandit", "env_config": BANDIT})
    env = make("Bandit", None, BANDIT)
    with served(env, Limits(sessions=32)) as url:
        tasks = {"train_split": "train", "eval_split": "eval", "train_tasks": 1024}
        door = {"base_url": url, "sessions": 32, "eval_tasks": 256, **tasks}
        through = train(tmp_path / "door", {**learn, "env": "OpenEnv", "env_config": door})
    assert not env.active_states
    assert len(native) == len(through)
    compared = [of_both(*pair) for pair in zip(native, through)]
    assert sum("reward" in step and "loss" in step for step in compared) == STEPS
    for step in compared:
        for key, (ours, theirs) in step.items():
            if isinstance(ours, float):
                same = math.isclose(ours, theirs, rel_tol=1e-4, abs_tol=1e-6)
                assert same or (math.isnan(ours) and math.isnan(theirs)), (key, ours, theirs)
            else:
                assert ours == theirs, key
    learned = [step for step in compared if "reward" in step and "loss" in step]
    assert all(step["reward"][0] > 0.05 and step["loss"][0] != 0.0 for step in learned)
