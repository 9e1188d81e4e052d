"""An environment of skyrl-gym with tasks of one's own.

pip install skyrl-gym
python examples/text_gym_skyrl.py
"""

import random

import skyrl_gym

from agentsgym import ScriptedAgent, task_dataset
from agentsgym.integrations.text_gym import TextGymEnv


class SumsEnv(TextGymEnv):
    """skyrl-gym's gsm8k_multi_turn on sums; the answer stands behind ####."""

    own_randomness = False  # it draws no random numbers

    class Settings(TextGymEnv.Settings):
        max_steps_per_episode: int = 3

    reward_range = (0.0, 1.2)

    def make_gym(self, task_data):
        extras = {
            "reward_spec": {"ground_truth": task_data["answer"]},
            "max_turns": self.config.max_steps_per_episode,
        }
        return skyrl_gym.make("gsm8k_multi_turn", env_config=None, extras=extras)

    def admissible_actions(self, state):
        return [f"#### {number}" for number in range(2, 19)]

    def get_train_dataset(self):
        return task_dataset(self, [sum_task(seed) for seed in range(40)])

    def get_eval_dataset(self):
        return task_dataset(self, [sum_task(seed) for seed in range(40, 50)])


def sum_task(seed):
    """A sum of two digits; the seed is part of the question, so that no two tasks are equal."""
    rng = random.Random(seed)
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    question = f"Question {seed}: what is {a} + {b}? Write #### before the answer."
    return {"prompt": [{"role": "user", "content": question}], "answer": str(a + b)}


if __name__ == "__main__":
    env = SumsEnv()
    tasks = [row["task_data"] for row in env.get_eval_dataset()]
    batch = env.run_trial(tasks, ScriptedAgent(["It is #### 10", "#### 11", "#### 12"]))
    for message in batch["final_completion_messages"][0]:
        print(f"{message['role']}: {message['content']}")
    print("rewards:", [round(reward, 2) for reward in batch["final_rewards"]])
