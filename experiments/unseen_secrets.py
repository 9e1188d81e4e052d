"""What reinforcement learning does to secrets that it never rewards.

    python experiments/unseen_secrets.py [--steps 120] [--seed 0] [--beta 0.03]
        [--information-reward 0.1]

The quickstart's model is trained on the tasks of 48 of its 64 secrets and evaluated on held-out
tasks of those and of the 16 others, before and after. `--beta` weights the KL penalty towards the
start, `--information-reward` pays each bit that a question gains (with `step_return`). Prints one
JSON line.
"""

import argparse
import json
import tempfile
from importlib import resources

import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentsgym import (
    DirectOutputAgent,
    EnvPool,
    GRPOEnvConfig,
    GRPOEnvTrainer,
    SamplingParams,
    make,
)
from agentsgym.evaluation import evaluate
from agentsgym.generation import EmbeddedEngine

UNSEEN = 16
UNSHARPENED = {"num_generations": 16, "advantage_estimator": "grpo", "entropy_coef": 0.0}
"""In place of the preset's settings. `--information-reward` changes the estimator."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beta", type=float, default=0.0)
    parser.add_argument("--information-reward", type=float, default=0.0)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    presets = resources.files("agentsgym") / "presets"
    preset = yaml.safe_load((presets / "quickstart.yaml").read_text(encoding="utf-8"))
    tokenizer = AutoTokenizer.from_pretrained(str(presets / "quickstart"))
    model = AutoModelForCausalLM.from_pretrained(str(presets / "quickstart"), dtype=torch.float32)
    information = {"information_reward": arguments.information_reward}
    env = make(preset["env"], None, preset["env_config"] | information)
    unseen = set(sorted(env.table.secrets)[:: len(env.table.secrets) // UNSEEN][:UNSEEN])
    train = env.get_train_dataset()
    seen_rows = [i for i, row in enumerate(train) if row["task_data"]["solution"] not in unseen]

    def scores() -> dict[str, dict[str, object]]:
        engine = EmbeddedEngine(model, tokenizer, capacity=256)
        agent = DirectOutputAgent(engine, SamplingParams(preset["train"]["max_action_tokens"]))
        result = {}
        for name, is_unseen in (("seen", False), ("unseen", True)):
            rows = [
                row
                for row in env.get_eval_dataset()
                if (row["task_data"]["solution"] in unseen) == is_unseen
            ]
            pool = EnvPool(tokenizer)
            played = evaluate(rows, agent, rollouts=512, rollouts_per_task=4, seed=0, envs=pool)
            evaluation = played.evaluation
            result[name] = {"win_rate": evaluation.win_rate, "ci95": evaluation.ci95}
        return result

    before = scores()
    with tempfile.TemporaryDirectory() as folder:
        settings = preset["train"] | UNSHARPENED | {"max_steps": arguments.steps}
        settings |= {"beta": arguments.beta, "output_dir": folder}
        if arguments.information_reward:
            settings["advantage_estimator"] = "step_return"
        args = GRPOEnvConfig(
            **settings,
            seed=arguments.seed,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        GRPOEnvTrainer(model, args, train.select(seen_rows), processing_class=tokenizer).train()
    print(json.dumps(vars(arguments) | {"before": before, "after": scores()}))


if __name__ == "__main__":
    main()
