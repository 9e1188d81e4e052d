"""The taskset guess_v1 of verifiers as an environment.

pip install 'agentsgym[verifiers]'
cd examples/verifiers
agentsgym check guess_env.GuessEnv
agentsgym train guess.yaml          # a tiny model learns it
"""

from pydantic import Field

from agentsgym.integrations.verifiers import VerifiersEnv


class GuessEnv(VerifiersEnv):
    taskset = {"id": "guess_v1"}

    class Settings(VerifiersEnv.Settings):
        max_steps_per_episode: int = 4
        win_reward: float = Field(0.5, description="reward from which on an episode is a win")

    reward_range = (0.0, 1.0)

    def admissible_actions(self, state):
        return list("0123456789")
