"""A chest with two locks, and five places where its keys may lie; the first hunt is practice."""

import random
import re

from agentsgym import EnvSettings, MultistepEnv, ScriptedAgent, task_dataset

PLACES = ["cave", "tower", "well", "garden", "barn"]


class TreasureEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 4
        episodes_per_trial: int = 2
        free_shots: int = 1
        carry: str = "full"

    reward_range = (0.0, 1.0)

    def _begin_episode(self, session_id, task_data, trial):
        silver, gold = random.Random(task_data["seed"]).sample(PLACES, 2)
        hunt = "This hunt counts." if trial.scored else "This hunt is practice."
        return {"silver": silver, "gold": gold, "keys": [], "text": hunt}

    def _format_prompt(self, state, step):
        if step > 0:
            return state["text"]
        return (
            "A chest needs a silver and a gold key. They lie in the cave, the tower, the well, "
            "the garden or the barn, in each hunt in the same places. You have four moves. "
            f"Search a place or open the chest. {state['text']}"
        )

    def _step_episode(self, session_id, state, action):
        words = action.strip().lower().split()
        if words == ["open", "chest"]:
            win = len(state["keys"]) == 2
            text = "The chest is full of coins!" if win else "The chest stays shut."
            return {**state, "text": text}, float(win), win, {"win": win}
        if len(words) != 2 or words[0] != "search" or words[1] not in PLACES:
            text = "You can search a place or open the chest."
            return {**state, "text": text}, 0.0, False, {"malformed": True}
        found = [key for key in ("silver", "gold") if state[key] == words[1]]
        text = f"In the {words[1]} lies the {found[0]} key." if found else "Nothing here."
        keys = sorted({*state["keys"], *found})
        return {**state, "keys": keys, "text": text}, 0.0, False, {"win": False}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(300)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(300, 500)])

    def admissible_actions(self, state):
        return [*(f"search {place}" for place in PLACES), "open chest"]

    def optimal_agent(self):
        return ScriptedAgent(_hunt)


def _hunt(messages):
    """Four places in the practice; what is not there lies in the fifth."""
    said = [m["content"] for m in messages if m["role"] == "assistant"]
    text = "\n".join(m["content"] for m in messages if m["role"] == "user")
    places = list(dict.fromkeys(re.findall(r"In the (\w+) lies", text)))
    if len(said) < 4:
        return f"search {PLACES[len(said)]}"
    places += [PLACES[4]] * (2 - len(places))
    return [*(f"search {place}" for place in places), "open chest"][len(said) - 4]
