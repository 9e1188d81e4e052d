"""One of several processes with TRL's GRPOTrainer and our rollout function; started by a test.

Groups of 4 rollouts over shares of 6 straddle the processes; episodes last one or two steps, and
some rollouts fail. Writes what this process played and the weights after two steps.
"""

import sys
from pathlib import Path

import torch
from trl import GRPOConfig, GRPOTrainer

from agentsgym import register
from agentsgym.integrations.trl import RolloutFunc, episode_reward, prompt_dataset
from helpers import CHATML, DigitEnv, build_tokenizer, random_llama

OPTIONS = {
    "max_steps": 1,
    "per_device_train_batch_size": 16,
    "num_generations": 8,
    "max_completion_length": 4,
    "learning_rate": 5e-3,
    "loss_type": "grpo",
    "shuffle_dataset": False,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
    "disable_tqdm": True,
}
"""Of TRL's configuration, in all tests with its trainer."""


class FlakyEnv(DigitEnv):
    """Fails at some actions."""

    def _step_episode(self, session_id, state, action):
        if len(action) % 4 == 1:
            raise RuntimeError("the environment broke")
        return super()._step_episode(session_id, state, action)


def everything(out: Path, processes: int) -> dict:
    """Two steps on 12 rollouts each, over all processes."""
    register("FlakyEnv", FlakyEnv)
    tokenizer = build_tokenizer(CHATML)
    env, play, outputs = FlakyEnv(tokenizer), RolloutFunc(), []

    def recorded(prompts, trainer):
        outputs.append(play(prompts, trainer))
        return outputs[-1]

    sizes = {"per_device_train_batch_size": 12 // processes, "num_generations": 4, "max_steps": 2}
    args = GRPOConfig(str(out), **OPTIONS | sizes)
    tasks = prompt_dataset(env.get_train_dataset())
    model = random_llama(tokenizer)
    trainer = GRPOTrainer(
        model, episode_reward, args, tasks, processing_class=tokenizer, rollout_func=recorded
    )
    trainer.train()
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    return {"outputs": outputs, "weights": flat, "rank": trainer.accelerator.process_index}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    results = everything(folder, 2)
    torch.save(results, folder / f"rank{results['rank']}.pt")
