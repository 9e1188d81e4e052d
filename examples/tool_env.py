"""An environment whose agent calls tools: it looks up prices and stocks, and answers questions.

python examples/tool_env.py [STEPS]     # 40 optimizer steps take about half a minute
"""

import random
import sys
import tempfile

import torch

from agentsgym import (
    GRPOEnvConfig,
    GRPOEnvTrainer,
    ScriptedAgent,
    ToolEnv,
    register,
    task_dataset,
    tool,
)
from agentsgym.types.tool_actions import calling
from agentsgym.warm_start.new_model import warm_start
from agentsgym.warm_start.settings import WarmStartSettings

ITEMS = ("tea", "milk", "bread", "salt")
QUESTIONS = {"price": "What does {} cost?", "stock": "How many of {} are left?"}


# --- the environment ---
class ShopEnv(ToolEnv):
    """A question about one thing in a shop, whose answer only the shop's lists have."""

    class Settings(ToolEnv.Settings):
        max_steps_per_episode: int = 4

    reward_range = (0.0, 1.0)

    def _initialize_episode(self, session_id, task_data):
        rng = random.Random(task_data["seed"])
        lists = {name: {item: rng.randint(1, 20) for item in ITEMS} for name in QUESTIONS}
        name, item = rng.choice(list(QUESTIONS)), rng.choice(ITEMS)
        return {"prompt": QUESTIONS[name].format(item), "answer": lists[name][item], **lists}

    @tool
    def price(self, state, item: str) -> int:
        """The price of a thing.

        Args:
            item: the thing's name
        """
        return state["price"][item]

    @tool
    def stock(self, state, item: str) -> int:
        """How many of a thing are left.

        Args:
            item: the thing's name
        """
        return state["stock"][item]

    def grade(self, state, answer):
        return answer.strip() == str(state["answer"])

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": seed} for seed in range(4096)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": 10_000 + seed} for seed in range(128)])

    def teacher_agent(self, *, seed=0):
        return clerk(random.Random(seed))


# --- a player that knows how to call the tools, but often not which one, and often guesses ---
def clerk(rng):
    """Calls the right tool half the time and any other with any thing else, and says the result."""
    right = {QUESTIONS[name].format(item): (name, item) for name in QUESTIONS for item in ITEMS}

    def choose(messages):
        if messages[-1]["role"] == "tool":
            return messages[-1]["content"]
        if rng.random() < 0.3:
            return str(rng.randint(1, 20))
        name, item = rng.choice([right[messages[0]["content"]], rng.choice(list(right.values()))])
        return calling(name, item=item)

    return ScriptedAgent(choose)


# --- training it ---
def main(steps: int = 60, seed: int = 0) -> tuple[float, float]:
    torch.set_num_threads(1)  # its matrices are too small for more
    register("Shop", ShopEnv)
    env = ShopEnv()
    games = WarmStartSettings(steps=min(300, 10 * steps), batch_size=32, tokenizer_games=300)
    started = warm_start(env, env.teacher_agent(seed=seed), games, seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOEnvTrainer(
            started.model,
            GRPOEnvConfig(
                output_dir=folder,
                seed=seed,
                max_steps=steps,
                per_device_train_batch_size=64,
                num_generations=8,
                max_action_tokens=24,
                max_rollout_tokens=256,
                learning_rate=1e-3,
                logging_steps=10,
                gradient_checkpointing=False,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            env.get_train_dataset(),
            env.get_eval_dataset(),
            processing_class=started.tokenizer,
        )
        before = trainer.evaluate()["eval_win_rate"]
        trainer.train()
        after = trainer.evaluate()["eval_win_rate"]
    print(f"held-out win rate: {before:.2f} before, {after:.2f} after {steps} steps")
    return before, after


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
