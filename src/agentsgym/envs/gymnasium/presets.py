"""The presets: FrozenLake, Taxi, CliffWalking and Blackjack as text."""

import importlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from agentsgym.envs.gymnasium.adapter import GymnasiumEnv, Running

MOST_ICE = 64


class GymnasiumFrozenLakeEnv(GymnasiumEnv):
    """Gymnasium's FrozenLake: cross the ice without falling into a hole. The goal pays 1.0.

    Maps are drawn from the seed (`map="random"`, always solvable) or are Gymnasium's fixed ones.
    With `slippery=True` two of three steps go in a wrong direction, as in Gymnasium.
    """

    env_id = "FrozenLake-v1"
    shares_model = True
    actions: ClassVar[Mapping[str, int]] = {"left": 0, "down": 1, "right": 2, "up": 3}
    rules = (
        "You (A) walk over a frozen lake. Reach the goal (G) and do not step into a hole (H); "
        "F is firm ice."
    )
    reward_range = (0.0, 1.0)

    class Settings(GymnasiumEnv.Settings):
        """The settings of FrozenLake."""

        max_steps_per_episode: int = 30
        map: Literal["random", "4x4", "8x8"] = Field("random", description="the lake")
        size: int = Field(
            4, ge=2, le=MOST_ICE, description=f"side of a random lake, at most {MOST_ICE}"
        )
        slippery: bool = Field(False, description="whether steps may go in a wrong direction")

    config: Settings

    def raw_options(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        """The map, as rows of letters."""
        options: dict[str, Any] = {"is_slippery": self.config.slippery}
        if self.config.map != "random":
            return options | {"map_name": self.config.map}
        module = importlib.import_module("gymnasium.envs.toy_text.frozen_lake")
        rows = module.generate_random_map(size=self.config.size, seed=task_data["seed"])
        return options | {"desc": rows}

    def identity(self, raw: Any, observation: Any, seed: int) -> Hashable:
        """The map; on slippery ice also the seed."""
        return (bytes(raw.desc.tobytes()), seed if self.config.slippery else None)

    def describe(self, raw: Any, observation: Any) -> str:
        """The map with A where the agent stands."""
        rows = [[cell.decode() for cell in row] for row in raw.desc]
        r, c = divmod(int(observation), raw.ncol)
        rows[r][c] = "A"
        lake = "\n".join(" ".join(row) for row in rows)
        return f"{lake}\nYou are in row {r + 1}, column {c + 1}."

    def ending(self, state: Running, reward: float) -> dict[str, Any]:
        """Won at the goal, lost in a hole."""
        return {"win": reward > 0, "stop_reason": "win" if reward > 0 else "hole"}


class GymnasiumTaxiEnv(GymnasiumEnv):
    """Gymnasium's Taxi: pick up a passenger and bring them to their destination.

    Each step pays -1, an illegal pickup or dropoff -10, the right dropoff 20. An episode that is
    given up also pays for the steps that remained.
    """

    env_id = "Taxi-v4"
    shares_model = True
    actions: ClassVar[Mapping[str, int]] = {
        "south": 0,
        "north": 1,
        "east": 2,
        "west": 3,
        "pickup": 4,
        "dropoff": 5,
    }
    rules = (
        "You drive a taxi (T) on a grid; walls are |. Fetch the passenger with pickup and let "
        "them out at their destination with dropoff. Every step costs 1, a wrong pickup or "
        "dropoff 10, the right dropoff earns 20."
    )
    wasted_step = -1.0
    reward_range = (float("-inf"), 20.0)

    class Settings(GymnasiumEnv.Settings):
        """The settings of Taxi."""

        max_steps_per_episode: int = 60

    config: Settings

    def identity(self, raw: Any, observation: Any, seed: int) -> Hashable:
        """The start state; there are 300."""
        return int(observation)

    def describe(self, raw: Any, observation: Any) -> str:
        """The grid, and the positions of taxi, passenger and destination."""
        row, column, passenger, destination = (int(i) for i in raw.decode(int(observation)))
        grid = [[cell.decode() for cell in line] for line in raw.desc]
        grid[row + 1][2 * column + 1] = "T"
        stands = "RGYB"
        where = "in the taxi" if passenger == 4 else f"at {stands[passenger]}"
        return (
            "\n".join("".join(line) for line in grid)
            + f"\nTaxi in row {row + 1}, column {column + 1}. Passenger {where}. "
            + f"Destination {stands[destination]}."
            + self._stands(raw)
        )

    def _stands(self, raw: Any) -> str:
        places = zip("RGYB", raw.locs, strict=True)
        listed = ", ".join(f"{name} row {r + 1} column {c + 1}" for name, (r, c) in places)
        return f" Stands: {listed}."


class GymnasiumCliffWalkingEnv(GymnasiumEnv):
    """Gymnasium's CliffWalking: walk along a cliff to the goal; best play earns -13.

    Each step pays -1, a fall -100 and a return to the start. An episode that is given up also pays
    for the steps that remained. There is one task, unless `slippery=True`.
    """

    env_id = "CliffWalking-v1"
    shares_model = True
    actions: ClassVar[Mapping[str, int]] = {"up": 0, "right": 1, "down": 2, "left": 3}
    rules = (
        "You (A) walk along a cliff (C) to the goal (G). Every step costs 1. Stepping onto the "
        "cliff costs 100 and puts you back to the start."
    )
    wasted_step = -1.0
    reward_range = (float("-inf"), -1.0)

    class Settings(GymnasiumEnv.Settings):
        """The settings of CliffWalking."""

        max_steps_per_episode: int = 50
        slippery: bool = Field(False, description="whether steps may go in a wrong direction")

    config: Settings

    def raw_options(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        """Whether the ground is slippery."""
        return {"is_slippery": self.config.slippery}

    def identity(self, raw: Any, observation: Any, seed: int) -> Hashable:
        """The seed if the ground is slippery; otherwise there is one task."""
        return seed if self.config.slippery else 0

    def describe(self, raw: Any, observation: Any) -> str:
        """The grid and the agent's position."""
        height, width = raw.shape
        rows = [["." for _ in range(width)] for _ in range(height)]
        rows[-1][1:] = ["C"] * (width - 2) + ["G"]
        r, c = divmod(int(observation), width)
        rows[r][c] = "A"
        grid = "\n".join(" ".join(row) for row in rows)
        return f"{grid}\nYou are in row {r + 1}, column {c + 1}."

    def ending(self, state: Running, reward: float) -> dict[str, Any]:
        """Reaching the goal is the only end."""
        return {"win": True, "stop_reason": "win"}


class GymnasiumBlackjackEnv(GymnasiumEnv):
    """Gymnasium's Blackjack: one hand against the dealer; 1.0 won, 0.0 drawn, -1.0 lost.

    A hand that is given up is lost.
    """

    env_id = "Blackjack-v1"
    actions: ClassVar[Mapping[str, int]] = {"stick": 0, "hit": 1}
    rules = (
        "You play blackjack against the dealer. hit draws a card, stick ends your turn; the "
        "dealer then draws to 17. Whoever is closer to 21 wins; over 21 loses."
    )
    reward_range = (-1.0, 1.0)

    def describe(self, raw: Any, observation: Any) -> str:
        """The hand's sum, the dealer's card, and whether an ace counts 11."""
        total, dealer, usable = (int(i) for i in observation)
        ace = "an ace that counts 11" if usable else "no ace that counts 11"
        shown = "an ace" if dealer == 1 else str(dealer)
        return f"Your hand counts {total}, with {ace}. The dealer shows {shown}."

    def _calculate_reward(
        self,
        state: Running,
        actions: Sequence[str],
        final_action: str,
        step_rewards: Sequence[float],
    ) -> float:
        """The hand's outcome; a hand that is given up is lost."""
        return sum(step_rewards) - (0.0 if state.terminated else 1.0)
