"""TRL's own GRPOTrainer on an environment of ours: docs/integrations/trl.md.

python examples/plain_trl.py [STEPS]     # 60 optimizer steps take some minutes
"""

import sys
import tempfile

import torch
from own_environment import HigherLowerEnv
from trl import GRPOConfig, GRPOTrainer

from agentsgym import register
from agentsgym.integrations.trl import episode_reward, prompt_dataset, rollout_func
from agentsgym.warm_start.tiny import build_model, build_tokenizer


def main(steps: int = 60) -> None:
    torch.set_num_threads(2)
    register("HigherLower", HigherLowerEnv)
    env = HigherLowerEnv()
    tokenizer = build_tokenizer(["Guess.", "Higher.", "Lower.", "A number!", *"0123456789"], 280)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            build_model(tokenizer),
            reward_funcs=episode_reward,
            args=GRPOConfig(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=64,
                num_generations=8,
                max_completion_length=3,  # of one action
                learning_rate=2e-3,
                per_device_eval_batch_size=128,
                num_generations_eval=2,
                logging_steps=10,
                gradient_checkpointing=False,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
            ),
            train_dataset=prompt_dataset(env.get_train_dataset()),
            eval_dataset=prompt_dataset(env.get_eval_dataset().select(range(64))),
            processing_class=tokenizer,
            rollout_func=rollout_func,
        )
        before = trainer.evaluate()["eval_win_rate"]
        trainer.train()
        after = trainer.evaluate()["eval_win_rate"]
    print(f"held-out win rate: {before:.2f} before, {after:.2f} after {steps} steps")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
