"""The taskset guess_v1 of verifiers as an environment.

pip install 'agentsgym[verifiers]'
cd examples/verifiers
agentsgym check guess_env.GuessEnv
agentsgym train guess.yaml          # a tiny model learns it
"""

from agentsgym import Key
from agentsgym.integrations.verifiers import VerifiersEnv


class GuessEnv(VerifiersEnv):
    taskset = {"id": "guess_v1"}
    config_keys = {
        "max_steps_per_episode": Key(int, 4, "guesses", minimum=1),
        "win_reward": Key(float, 0.5, "reward from which on an episode is a win"),
    }
    reward_range = (0.0, 1.0)

    def admissible_actions(self, state):
        return list("0123456789")
