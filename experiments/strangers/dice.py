"""Pig: roll as often as you dare; a one loses all of the turn."""

import random
import re
from functools import cache

from agentsgym import EnvSettings, MultistepEnv, ScriptedAgent, task_dataset

MOST = 8
"""Actions in a turn; points that are not banked by then are lost."""


class DiceEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = MOST

    reward_range = (0.0, 2.1)

    def _initialize_episode(self, session_id, task_data):
        rolls = random.Random(task_data["seed"])
        return {"dice": [rolls.randint(1, 6) for _ in range(MOST)], "rolled": 0, "points": 0}

    def _format_prompt(self, state, step):
        left = MOST - step
        if step == 0:
            return (
                f"A game of dice. You have {left} actions. Say roll to add a die to your points; "
                "a one loses them all. Say bank to keep your points."
            )
        die = state["dice"][state["rolled"] - 1] if state["rolled"] else "nothing"
        return f"You rolled {die}. You have {state['points']} points and {left} actions."

    def _step_episode(self, session_id, state, action):
        text = action.strip().lower()
        if text == "bank":
            return state, state["points"] / 20, True, {}
        if text != "roll" or state["rolled"] == MOST:
            return state, 0.0, False, {"malformed": True}
        die = state["dice"][state["rolled"]]
        points = 0 if die == 1 else state["points"] + die
        return {**state, "rolled": state["rolled"] + 1, "points": points}, 0.0, die == 1, {}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(2000)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(2000, 2512)])

    def admissible_actions(self, state):
        return ["roll", "bank"]

    def optimal_agent(self):
        def choose(messages):
            known = re.search(r"(\d+) points and (\d+) actions", messages[-1]["content"])
            points, left = map(int, known.groups()) if known else (0, MOST)
            return "roll" if worth_of_rolling(points, left) > points else "bank"

        return ScriptedAgent(choose)


@cache
def worth(points, left):
    """Expected points of the best play."""
    return 0.0 if left == 0 else max(float(points), worth_of_rolling(points, left))


def worth_of_rolling(points, left):
    return sum(worth(points + die, left - 1) for die in range(2, 7)) / 6
