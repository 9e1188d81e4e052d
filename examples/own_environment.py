"""An environment of one's own, trained with the same trainer: find a digit by higher and lower.

python examples/own_environment.py [STEPS]     # 60 optimizer steps take about a minute
"""

import random
import sys
import tempfile

import torch

from agentsgym import (
    EnvSettings,
    GRPOEnvConfig,
    GRPOEnvTrainer,
    MultistepEnv,
    register,
    task_dataset,
)
from agentsgym.warm_start.tiny import build_model, build_tokenizer


# --- the environment ---
class HigherLowerEnv(MultistepEnv):
    """Guess a digit; the answer to a wrong guess says which way to go."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 4

    reward_range = (0.0, 1.0)

    def _initialize_episode(self, session_id, task_data):
        number = random.Random(task_data["seed"]).randint(0, 9)
        return {"number": number, "prompt": "Guess."}

    def _format_prompt(self, state, step):
        return state["prompt"]

    def _step_episode(self, session_id, state, action):
        digits = [int(c) for c in action if c in "0123456789"]
        if not digits:
            return {**state, "prompt": "A number!"}, 0.0, False, {"malformed": True, "win": False}
        win = digits[0] == state["number"]
        hint = "Higher." if digits[0] < state["number"] else "Lower."
        return {**state, "prompt": hint}, float(win), win, {"win": win}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": seed} for seed in range(512)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": 10_000 + seed} for seed in range(128)])


# --- training it ---
def main(steps: int = 60) -> None:
    torch.set_num_threads(1)  # its matrices are too small for more
    register("HigherLower", HigherLowerEnv)
    env = HigherLowerEnv()
    tokenizer = build_tokenizer(["Guess.", "Higher.", "Lower.", "A number!", *"0123456789"], 280)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOEnvTrainer(
            build_model(tokenizer),
            GRPOEnvConfig(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=256,
                num_generations=16,
                max_action_tokens=3,
                learning_rate=2e-3,
                advantage_estimator="step_return",
                logging_steps=10,
                gradient_checkpointing=False,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            env.get_train_dataset(),
            env.get_eval_dataset(),
            processing_class=tokenizer,
        )
        before = trainer.evaluate()["eval_win_rate"]
        trainer.train()
        after = trainer.evaluate()["eval_win_rate"]
    print(f"held-out win rate: {before:.2f} before, {after:.2f} after {steps} steps")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
