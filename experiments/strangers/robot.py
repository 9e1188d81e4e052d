"""A robot fetches samples from a corridor and must be back before its battery is empty."""

import random
from functools import cache

from agentsgym import EnvSettings, MultistepEnv, PrivilegedAgent, ScriptedAgent, task_dataset

ACTIONS = ["forward", "back", "pick up"]


class RobotEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 12

    reward_range = (0.0, 1.0)

    def _initialize_episode(self, session_id, task_data):
        rooms, battery = corridor(task_data["seed"])
        return {"at": 0, "rooms": rooms, "battery": battery, "carried": 0, "error": ""}

    def _format_prompt(self, state, step):
        where = f"Room {state['at']}." if state["at"] else "You are at the base."
        sample = " A sample lies here." if state["at"] in state["rooms"] else ""
        text = f"{state['error']}{where}{sample} Battery {state['battery']}."
        text += f" You carry {state['carried']}."
        if step > 0:
            return text
        rooms = " and ".join(map(str, state["rooms"]))
        return (
            f"You steer a robot in a corridor with rooms 1 to 4. Samples lie in rooms {rooms}. "
            "Bring them to the base; every action takes one unit of the battery.\n"
            f"Actions: forward, back, pick up.\n{text}"
        )

    def _step_episode(self, session_id, state, action):
        text = action.strip().lower()
        if text not in ACTIONS:
            return {**state, "error": "Unknown command. "}, 0.0, False, {"malformed": True}
        at, rooms, battery, carried = move(
            (state["at"], tuple(state["rooms"]), state["battery"], state["carried"]), text
        )
        home = at == 0 and carried > 0
        new = {"at": at, "rooms": rooms, "battery": battery, "carried": carried, "error": ""}
        reward = 0.5 * carried if home else 0.0
        return new, reward, home or battery == 0, {"win": home and not rooms}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(400)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(400, 600)])

    def admissible_actions(self, state):
        return ACTIONS

    def reference_score(self, task_data):
        rooms, battery = corridor(task_data["seed"])
        return plan((0, rooms, battery, 0))[0]

    def optimal_agent(self):
        return Pilot()


def corridor(seed):
    """The rooms of two samples, and a battery that sometimes suffices for the nearer one only."""
    rng = random.Random(seed)
    rooms = tuple(sorted(rng.sample(range(1, 5), 2)))
    return rooms, rng.choice([2 * rooms[1] + 2, 2 * rooms[0] + 1 + rng.randint(0, 2)])


def move(state, action):
    at, rooms, battery, carried = state
    if action == "pick up" and at in rooms:
        rooms, carried = tuple(room for room in rooms if room != at), carried + 1
    at = min(max(at + {"forward": 1, "back": -1}.get(action, 0), 0), 4)
    return at, rooms, battery - 1, carried


@cache
def plan(state):
    """(reward, first action) of the best plan."""
    at, _, battery, carried = state
    if at == 0 and carried:
        return 0.5 * carried, ""
    if battery == 0:
        return 0.0, ""
    return max((plan(move(state, action))[0], action) for action in ACTIONS)


class Pilot(PrivilegedAgent):
    """Follows the best plan, which the first prompt tells all about."""

    def for_session(self, session):
        rooms, battery = corridor(session.task_data["seed"])

        def choose(messages):
            state = (0, rooms, battery, 0)
            for action in session.actions:
                state = move(state, action)
            return plan(state)[1]

        return ScriptedAgent(choose)
