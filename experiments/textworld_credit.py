"""A short TextWorld run whose actions are measured afterwards.

    python experiments/textworld_credit.py FOLDER
    agentsgym credit FOLDER/run --step 20 --replay --budget 10000

A tiny model imitates 128 games of a careless player on four games that it knows by heart
afterwards, and is then trained on them by `grpo`: its mean reward goes from 0.2 to 0.6 in 24
updates. Checkpoints are kept, so that the policy of step 20 can play on. A game takes about 0.1 s
of CPU, most of it its start.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentsgym import make
from agentsgym.runs import RunConfig, train_run
from agentsgym.warm_start.fit import fit
from agentsgym.warm_start.lessons import make_lessons
from agentsgym.warm_start.settings import TinySettings, WarmStartSettings
from agentsgym.warm_start.tiny import build_model, build_tokenizer

GAME = {
    "rooms": 2,
    "objects": 4,
    "quest_length": 3,
    "train_tasks": 4,
    "eval_tasks": 4,
    "max_steps_per_episode": 8,
    "workers": 0,
    "explain_actions": False,
}
TRAIN = {
    "advantage_estimator": "grpo",
    "max_steps": 24,
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_action_tokens": 12,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 5,
    "weight_decay": 0.0,
    "adam_beta2": 0.98,
    "loss_type": "dapo",
    "gradient_checkpointing": False,
    "save_steps": 4,
    "save_total_limit": 10,
}


class Careless:
    """Gives the walkthrough's next command with probability 0.3, otherwise any admissible one."""

    def __init__(self, plans: Mapping[str, Sequence[str]], seed: int) -> None:
        self.plans = plans
        self.rng = np.random.default_rng(seed)

    def get_action(self, messages: Sequence[Any], done: int | None) -> tuple[str, int]:
        """A command; `done` is how many of the walkthrough's were given."""
        plan, done = self.plans[messages[0]["content"]], done or 0
        commands = messages[-1]["content"].rpartition("Admissible commands: ")[2]
        listed = commands.rstrip(".").split(", ")
        if done < len(plan) and self.rng.random() < 0.3 and plan[done] in listed:
            return plan[done], done + 1
        return listed[self.rng.integers(len(listed))], done


def make_start(folder: Path, seed: int = 0) -> None:
    """Save the model that imitated the careless player, and its tokenizer."""
    env: Any = make("TextWorld", None, GAME)
    tasks = [row["task_data"] for row in env.get_train_dataset()]
    plans = {env._format_prompt(env.begin(task), 0): env.walkthrough(task) for task in tasks}
    games = env.run_trial(tasks, Careless(plans, seed), 32).rollouts
    steps = [step for game in games for step in game.steps]
    texts = [text for step in steps for text in (step.observation, step.action)]
    tokenizer = build_tokenizer(texts, 2048, max_token_length=200, pieces="lines")
    model = build_model(tokenizer, TinySettings(hidden_size=96, intermediate_size=192), seed)
    told = env.with_tokenizer(tokenizer)
    lessons = make_lessons(
        told.run_trial(tasks, Careless(plans, seed), 32).rollouts, told.codec, 0.0
    )
    settings = WarmStartSettings(epochs=12, learning_rate=3e-3)
    fit(model, lessons, settings, pad_id=tokenizer.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Make the start, and the run."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    make_start(folder / "start")
    settings = {
        "env": "TextWorld",
        "env_config": GAME,
        "model": str(folder / "start"),
        "signal_check": False,
        "train": TRAIN,
        "eval": {"rollouts": 8},
        "threads": 1,
        "output_dir": str(folder / "run"),
    }
    train_run(RunConfig.model_validate(settings))


if __name__ == "__main__":
    main()
