"""A vending machine with worn labels: find the button that gives the drink you want."""

import random
import re

from agentsgym import EnvSettings, MultistepEnv, ScriptedAgent, task_dataset

DRINKS = ["water", "tea", "cola", "milk", "coffee", "juice", "cocoa", "soup"]
BUTTONS = [1, 2, 3, 4, 5]


class VendingEnv(MultistepEnv):
    """Three coins in each of two visits, of which the first is for trying."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 3
        episodes_per_trial: int = 2
        free_shots: int = 1
        carry: str = "full"

    reward_range = (0.0, 1.0)

    def _begin_episode(self, session_id, task_data, trial):
        rng = random.Random(task_data["seed"])
        drinks = rng.sample(DRINKS, 5)
        scored = "This visit counts." if trial.scored else "This visit is for trying."
        return {"drinks": drinks, "want": rng.choice(drinks), "coins": 3, "text": scored}

    def _format_prompt(self, state, step):
        if step > 0:
            return state["text"]
        return (
            f"{state['text']} You want {state['want']}. The machine has the buttons 1, 2, 3, 4 "
            "and 5. You have 3 coins; every press costs one."
        )

    def _step_episode(self, session_id, state, action):
        match = re.fullmatch(r"\s*press (\d)\s*", action.lower())
        if match is None or int(match[1]) not in BUTTONS:
            text = "Nothing happens. Say press and a number."
            return {**state, "text": text}, 0.0, False, {"malformed": True}
        drink = state["drinks"][int(match[1]) - 1]
        coins, win = state["coins"] - 1, drink == state["want"]
        text = f"Button {match[1]} gives {drink}. You have {coins} coins."
        reward = (1 + 2 * coins) / 5 if win else 0.0
        return {**state, "coins": coins, "text": text}, reward, win or coins == 0, {"win": win}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(1000)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(1000, 1256)])

    def admissible_actions(self, state):
        return [f"press {button}" for button in BUTTONS]

    def optimal_agent(self):
        def choose(messages):
            text = "\n".join(m["content"] for m in messages if m["role"] == "user")
            want = re.findall(r"You want (\w+)", text)[-1]
            known = {
                drink: number for number, drink in re.findall(r"Button (\d) gives (\w+)", text)
            }
            new = [b for b in BUTTONS if str(b) not in known.values()]
            return f"press {known.get(want, new[0] if new else 1)}"

        return ScriptedAgent(choose)
