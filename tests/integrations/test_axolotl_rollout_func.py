"""Axolotl's own GRPO trainer with our rollout function (`trl.rollout_func`), for those who keep it;
`make test-axolotl` has Axolotl in an environment of its own."""

import json
import os

import pytest
import yaml

pytest.importorskip("axolotl")

from agentsgym import register
from agentsgym.integrations.trl import prompt_dataset
from agentsgym.integrations.trl.rollouts import SeveralRows
from helpers import CHATML, DigitEnv, build_tokenizer, random_llama

pytestmark = pytest.mark.timeout(1800)
os.environ |= {"AXOLOTL_DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

CONFIG = {
    "base_model": "model",
    "rl": "grpo",
    "trl": {
        "num_generations": 8,
        "loss_type": "grpo",
        "max_completion_length": 4,
        "rollout_func": "agentsgym.integrations.trl.rollout_func",
        "reward_funcs": ["agentsgym.integrations.trl.episode_reward"],
    },
    "datasets": [{"path": "prompts.jsonl", "ds_type": "json", "type": None}],
    "output_dir": "out",
    "seed": 1,
    "sequence_len": 512,
    "micro_batch_size": 16,
    "gradient_accumulation_steps": 1,
    "max_steps": 2,
    "optimizer": "adamw_torch",
    "learning_rate": 3.0e-3,
    "logging_steps": 1,
    "save_steps": 2,
    "bf16": False,
    "tf32": False,
    "gradient_checkpointing": False,
    "attn_implementation": "sdpa",
    "use_cpu": True,
}


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Returns a function that trains in this process on an environment with a configuration."""
    from axolotl.cli.train import do_cli

    register("Digit", DigitEnv)
    monkeypatch.chdir(tmp_path)
    tokenizer = build_tokenizer(CHATML)
    random_llama(tokenizer).save_pretrained("model")
    tokenizer.save_pretrained("model")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(CONFIG))

    def run(env_config):
        rows = DigitEnv(tokenizer, env_config).get_train_dataset()
        prompt_dataset(rows).to_json("prompts.jsonl")
        do_cli("run.yaml")
        return json.loads((tmp_path / "out/checkpoint-2/trainer_state.json").read_text())

    return run


def test_it_trains_on_exact_tokens_with_one_advantage_per_rollout(train):
    lines = [line for line in train({})["log_history"] if "loss" in line]
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert line["reward"] == line["rewards/episode_reward/mean"] == line["win_rate"]
        assert line["failed"] == 0.0
    assert any(line["reward_std"] > 0 and line["grad_norm"] > 0 for line in lines)


def test_several_rows_are_refused(train):
    with pytest.raises(SeveralRows, match="gave 2 rows"):
        train({"episodes_per_trial": 2})
