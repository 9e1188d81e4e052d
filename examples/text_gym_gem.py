"""A game of GEM as an environment, in a few lines.

pip install gem-llm
cd examples
agentsgym check text_gym_gem.GuessTheNumberEnv
agentsgym train text_gym_gem.yaml          # a tiny model learns it, in minutes on one core
"""

import gem

from agentsgym.integrations.text_gym import TextGymEnv


class GuessTheNumberEnv(TextGymEnv):
    """GEM's GuessTheNumber: a number from 1 to 5 in three guesses, told "higher" or "lower".

    GEM pays for a near guess in the last of its turns, the fourth: so only a hit pays here.
    """

    class Settings(TextGymEnv.Settings):
        max_steps_per_episode: int = 3

    reward_range = (-0.1, 1.0)

    def make_gym(self, task_data):
        return gem.make("game:GuessTheNumber-v0-easy", max_number=5, max_turns=4)

    def text_of(self, observation, info):
        return f"{observation}\n{info['suffix']}"  # GEM's suffix belongs to the prompt

    def admissible_actions(self, state):
        return [f"\\boxed{{{number}}}" for number in range(1, 6)]
