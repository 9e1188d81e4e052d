"""Gymnasium environments with discrete actions, played as text; presets `Gymnasium/<Name>`."""

from agentsgym.envs.gymnasium.adapter import GymnasiumEnv
from agentsgym.envs.gymnasium.presets import (
    GymnasiumBlackjackEnv,
    GymnasiumCliffWalkingEnv,
    GymnasiumFrozenLakeEnv,
    GymnasiumTaxiEnv,
)

__all__ = [
    "GymnasiumBlackjackEnv",
    "GymnasiumCliffWalkingEnv",
    "GymnasiumEnv",
    "GymnasiumFrozenLakeEnv",
    "GymnasiumTaxiEnv",
]
