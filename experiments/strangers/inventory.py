"""A hike: things turn up one by one, the bag holds three, and the quest needs three of them."""

import random

from agentsgym import EnvSettings, MultistepEnv, ScriptedAgent, task_dataset

THINGS = ["rope", "lamp", "bread", "knife", "map", "coat", "flask", "drum", "book", "whistle"]


class InventoryEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 6

    reward_range = (0.0, 1.0)

    def _initialize_episode(self, session_id, task_data):
        found = random.Random(task_data["seed"]).sample(THINGS, 6)
        needed = random.Random(task_data["seed"] + 1).sample(found, 3)
        return {"needed": needed, "found": found, "at": 0, "bag": [], "said": ""}

    def _format_prompt(self, state, step):
        here = f"You find a {state['found'][state['at']]}. Take it or leave it?"
        if step == 0:
            return (
                f"You go on a hike. Your quest needs: {', '.join(sorted(state['needed']))}. "
                f"Your bag holds three things.\n{here}"
            )
        bag = ", ".join(state["bag"]) or "nothing"
        return f"{state['said']} Your bag holds {bag}.\n{here}"

    def _step_episode(self, session_id, state, action):
        choice = action.strip().lower()
        if choice not in ("take", "leave"):
            return {**state, "said": "Say take or leave."}, 0.0, False, {"malformed": True}
        thing, bag, reward = state["found"][state["at"]], state["bag"], 0.0
        if choice == "take" and len(bag) < 3:
            bag = [*bag, thing]
            reward = (thing in state["needed"]) / 3
        said = "Your bag is full." if choice == "take" and bag is state["bag"] else "You go on."
        done = state["at"] == 5
        # The last find stays in view, so that the state can still be shown.
        at = state["at"] if done else state["at"] + 1
        new = {**state, "bag": bag, "at": at, "said": said}
        win = sum(t in state["needed"] for t in bag) == 3
        return new, reward, done, {"win": win}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": 10 * k} for k in range(500)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": 10 * k + 5} for k in range(256)])

    def admissible_actions(self, state):
        return ["take", "leave"]

    def optimal_agent(self):
        def choose(messages):
            needed = messages[0]["content"].split("needs: ")[1].split(".")[0].split(", ")
            thing = messages[-1]["content"].split("find a ")[1].split(".")[0]
            return "take" if thing in needed else "leave"

        return ScriptedAgent(choose)
